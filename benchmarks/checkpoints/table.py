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
#: Part of the page -> its cells, in the study's folder.
OTHERS = {
    "tasks": "tasks/*.json",
    "encoder": "minilm/*.json",
    "round trips": "round_trip/*.json",
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
    others = {
        part: [json.loads(path.read_text()) for path in sorted(folder.glob(where))]
        for part, where in OTHERS.items()
    }
    text = markdown(cells, others)
    (results / "checkpoints.md").write_text(text, encoding="utf-8")
    print(text)


def markdown(cells: dict[str, list[dict]], others: dict[str, list[dict]]) -> str:
    """The page: `others` are the cells of each part of `OTHERS`."""
    lines = [
        "# Released checkpoints made smaller",
        "",
        "Perplexity per token of held-out text, in windows of "
        f"{WINDOW} tokens with a stride of {WINDOW}, {JUDGED:,} tokens of each text. "
        "The weights were dequantized from 4 bits: they are not the original's. One "
        "seed. On CPUs, but for what has another device below. `excess removed` is "
        "(log cut - log recovered) / (log cut - log before), where the cut is the "
        "untrained model of the same share by `activation` without a refit.",
    ]
    for name, found in cells.items():
        if found:
            lines += ["", f"## {ORIGINS[name]}", "", *_table(found)]
    parts = {"tasks": _tasks, "encoder": _encoder, "round trips": _round_trips}
    for part, found in others.items():
        if found:
            lines += ["", *parts[part](found)]
    machines = {
        f"{_machine(c)}; {c['date'][:10]}; {_versions(c)}"
        for found in (*cells.values(), *others.values())
        for c in found
    }
    return "\n".join([*lines, "", *(f"- {m}" for m in sorted(machines))]) + "\n"


def _machine(cell: dict) -> str:
    hardware = cell["hardware"]
    device = hardware.get("device", "cpu")
    gpu = "" if device.lower() == "cpu" else f", {device}"
    return f"{hardware['cpu']}, {hardware['cores']} cores{gpu}"


def _versions(cell: dict) -> str:
    names = (
        *("keras", "tensorflow", "jax", "torch", "optipfair", "torch-pruning"),
        *("lm_eval", "transformers", "llama-cpp-python"),
    )
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


def _tasks(found: list[dict]) -> list[str]:
    """Accuracies, with their standard errors."""
    lines = [
        "## Questions",
        "",
        "lm-evaluation-harness's tasks, 0-shot, the first documents of each; accuracy "
        "normalized by length, with its standard error.",
        "",
        "| checkpoint | how | documents | arc_challenge | hellaswag |",
        "|---|---|---|---|---|",
    ]
    order = sorted(found, key=lambda c: (c["name"], c["how"] != "as it is", c["how"]))
    for cell in order:
        figures = " | ".join(
            f"{cell[task]['acc_norm']:.3f} ± {cell[task]['acc_norm_stderr']:.3f}"
            for task in ("arc_challenge", "hellaswag")
        )
        lines.append(
            f"| {cell['name']} | {cell['how']} | {cell['limit']} | {figures} |"
        )
    return lines


def _encoder(found: list[dict]) -> list[str]:
    """Embeddings beside those of the wide model."""
    lines = [
        "## all-MiniLM-L6-v2",
        "",
        "Embeddings of 1,024 held-out sentences beside the wide model's: mean cosine, "
        "rank correlation of the similarities of all pairs, and how often the nearest "
        "other sentence is the same. No labels: what is recovered learns the wide "
        "model's embeddings of 12,800 sentences.",
        "",
        "| neurons kept | how | parameters | cosine | rank correlation | nearest |",
        "|---|---|---|---|---|---|",
    ]
    for cell in sorted(found, key=lambda c: (-c["share"], c["cosine"])):
        lines.append(
            f"| {cell['share']:g} | {cell['how']} | {cell['parameters']:,} | "
            f"{cell['cosine']:.4f} | {cell['rank correlation']:.4f} | "
            f"{cell['same nearest']:.3f} |"
        )
    return lines


def _or_dash(row: dict, name: str, form: str) -> str:
    return f"{row[name]:{form}}" if name in row else "–"


def _round_trips(found: list[dict]) -> list[str]:
    """What each library computes with what was exported."""
    lines = [
        "## Exported, and loaded by each library in a fresh process",
        "",
        "2,048 tokens of WikiText-2; 96 greedy tokens, and the largest difference of "
        "a logit in the first window, beside transformers'. Token ids of that text, "
        "and of ten texts in five languages and code, beside `keras_idea.hub.load`. "
        "Cells without a logit are older: their token ids are beside transformers'.",
        "",
        "| file | MB | nats per token | greedy tokens equal | logits differ by | "
        "token ids equal | of ten texts |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in found:
        name = cell["command"].split()[-2]
        for file, row in cell["rows"].items():
            lines.append(
                f"| {name}: {file} | {row['megabytes']:.0f} | {row['nats']:.5f} | "
                f"{row['greedy tokens equal']} of {row['greedy tokens']} | "
                f"{_or_dash(row, 'logits differ by', '.1e')} | "
                f"{'yes' if row['token ids equal'] else 'no'} | "
                f"{_or_dash(row, 'texts with equal ids', '')} |"
            )
    return lines
