"""The tables of the study, from its cells."""

import json
import math
import pathlib

from benchmarks.checkpoints.texts import HELD_OUT, JUDGED, WINDOW

#: Checkpoint -> what its file was, before it was dequantized.
ORIGINS = {
    "smollm2": "SmolLM2-135M-Instruct, dequantized from Q4_1",
    "smollm2-gguf": "SmolLM2-135M-Instruct with its own tokens, dequantized from Q4_1",
    "gemma3": "Gemma 3 270M, dequantized from Q4_K_M",
}


def write(folder: pathlib.Path, results: pathlib.Path) -> None:
    """Writes checkpoints.md of all cells in a folder, and prints it."""
    cells = {
        name: [
            json.loads(path.read_text())
            for path in sorted((folder / name).glob("*.json"))
        ]
        for name in ORIGINS
    }
    text = markdown(cells)
    (results / "checkpoints.md").write_text(text, encoding="utf-8")
    print(text)


def markdown(cells: dict[str, list[dict]]) -> str:
    """The page."""
    lines = [
        "# Released checkpoints made smaller",
        "",
        "Perplexity per token of held-out text, in windows of "
        f"{WINDOW} tokens with a stride of {WINDOW}, {JUDGED:,} tokens of each text. "
        "The weights were dequantized from 4 bits: they are not the original's. One "
        "seed. On CPUs, but for what has another device below. `excess removed` is "
        "(log cut - log recovered) / (log cut - log before), where the cut is the "
        "untrained model of the same share by `activation` without a refit. "
        "[Questions, embeddings and exported files](checkpoints_others.md) of the same "
        "models.",
    ]
    for name, found in cells.items():
        if found:
            lines += ["", f"## {ORIGINS[name]}", "", *_table(found)]
    machines = {
        f"{_machine(c)}; {c['date'][:10]}; {_versions(c)}"
        for found in cells.values()
        for c in found
    }
    return "\n".join([*lines, "", *(f"- {m}" for m in sorted(machines))]) + "\n"


def _machine(cell: dict) -> str:
    hardware = cell["hardware"]
    device = hardware.get("device", "cpu")
    gpu = "" if device.lower() == "cpu" else f", {device}"
    return f"{hardware['cpu']}, {hardware['cores']} cores{gpu}"


def _versions(cell: dict) -> str:
    names = ("keras", "tensorflow", "jax", "torch", "transformers", "optipfair")
    names = (*names, "torch-pruning")
    return ", ".join(f"{n} {v}" for n, v in cell["versions"].items() if n in names)


def _table(found: list[dict]) -> list[str]:
    names = " | ".join(HELD_OUT)
    removed = " | ".join(f"excess removed, {name}" for name in HELD_OUT)
    lines = [
        f"| neurons kept | how | tokens | peak | parameters | {names} | {removed} |",
        "|" + "---|" * (5 + 2 * len(HELD_OUT)),
    ]
    order = sorted(found, key=lambda c: (-c["share"], c["tokens"], c["openwebtext"]))
    for cell in order:
        numbers = " | ".join(f"{math.exp(cell[name]):,.2f}" for name in HELD_OUT)
        shares = " | ".join(_removed(cell, found, name) for name in HELD_OUT)
        tokens = f"{cell['tokens']:,}" if cell["tokens"] else "–"
        peak = f"{cell['peak']:g}" if cell["tokens"] else "–"
        lines.append(
            f"| {cell['share']:g} | {cell['how']} | {tokens} | {peak} | "
            f"{cell['parameters']:,} | {numbers} | {shares} |"
        )
    return lines


def _removed(cell: dict, found: list[dict], name: str) -> str:
    """The share of the excess loss that a recovery removed; "–" of the others."""
    before = _loss(found, 1.0, "as it is", name)
    cut = _loss(found, cell["share"], "activation", name)
    if not cell["tokens"] or None in (before, cut) or cell["how"] == "control":
        return "–"
    return f"{excess_removed(before, cut, cell[name]):.0%}"


def excess_removed(before: float, cut: float, recovered: float) -> float:
    """(cut - recovered) / (cut - before), of losses in nats.

    Example:
    >>> excess_removed(before=3.0, cut=5.0, recovered=3.5)
    0.75
    """
    return (cut - recovered) / (cut - before)


def _loss(found: list[dict], share: float, how: str, name: str) -> float | None:
    for cell in found:
        if (cell["share"], cell["how"], cell["tokens"]) == (share, how, 0):
            return cell[name]
    return None
