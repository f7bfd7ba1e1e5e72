"""What pruning costs in time, as blocks of pages: from recorded benchmarks."""

import functools
import json
import statistics
from collections.abc import Callable, Iterator

from benchmarks.pages import of_gpu
from benchmarks.pages.words import span, table
from benchmarks.peers.registry import PEERS
from benchmarks.record import REPOSITORY
from keras_idea.functional.milestones import compaction_widths
from keras_idea.schedules import CubicWidth

RESULTS = REPOSITORY / "benchmarks" / "results"
BACKENDS = {"torch": "eager PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
PRUNING = ("pruning / plain wide", "pruning with its callback / plain wide")
NARROWED = ("compacted in place / built narrow", "compact(model) / built narrow")
NOISE = "noise: plain wide / plain wide"
MODELS = {
    "": "own decoder",
    "llama3": "KerasHub's Llama 3",
    "smollm2": "SmolLM2-135M",
    "ffns": "FFNs alone",
}
#: From when on `step_cost.py` fails if a pruner did nothing.
PROVEN = "2026-11-24"
#: FFN widths of which the price of narrowing is computed.
WIDTHS = ((512, 192), (2048, 512), (8192, 3072))


@functools.cache
def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def timed(whole: bool | None = None) -> Iterator[tuple[str, str, str, dict, dict]]:
    """(model, shape's name, backend, ratios, facts) of `step_cost`, the newest of each.

    Args:
        whole: bool or None. True: of whole models alone; False: of FFNs alone.
    """
    newest = {}
    for backend in BACKENDS:
        for path in RESULTS.glob(f"step_cost*-{backend}.json"):
            facts = _read(path)
            model = next((part for part in path.stem.split("-") if part in MODELS), "")
            for shape, found in facts["step"].items():
                row = (MODELS[model], shape, backend, found["ratios"], facts)
                before = newest.setdefault(row[:3], row)
                if before[-1]["date"] < facts["date"]:
                    newest[row[:3]] = row
    for key, row in sorted(newest.items(), key=lambda item: item[0]):
        if whole is None or whole == (key[0] != MODELS["ffns"]):
            yield row


def medians(names: tuple[str, ...], backend: str | None = None) -> list[float]:
    """The medians of some ratios over all whole models."""
    return [
        ratios[name]["median"]
        for _, _, own, ratios, _ in timed(whole=True)
        for name in names
        if backend in (None, own) and name in ratios
    ]


def cheap() -> str:
    """The README's sentence: the range over whole models, not the friendliest one."""
    by_backend = ", ".join(
        f"{said} {span(medians(PRUNING, backend), 2)}"
        for backend, said in BACKENDS.items()
    )
    return (
        "While pruning, a training step of a whole model takes "
        f"{span(medians(PRUNING), 2)}× as long as a step of the plain wide model "
        f"on CPUs ({by_backend}), and of two large layers {of_gpu.short()}. "
        f"Once narrowed, it takes {span(medians(NARROWED), 2)}× as long as a step of "
        "a model that was built narrow"
    )


def in_short() -> str:
    """The bullets of the page."""
    noise = medians((NOISE,))
    return (
        f"- {cheap()}.\n- Measured twice, the same plain model gives ratios of "
        f"{span(noise, 2)}. Smaller differences are not significant."
    )


def _row(ratios, names):
    """The text of some ratios; a dash for one that was not measured."""
    cells = []
    for name in names:
        ratio = ratios.get(name)
        if ratio is None:
            cells.append("-")
        else:
            ends = f"{ratio['low']:.2f}\u2013{ratio['high']:.2f}"
            cells.append(f"{ratio['median']:.2f} ({ends})")
    return cells


def _timed_table(whole):
    header = ["model", "shape", "backend", "pruning", "with the callback"]
    lines = [[*header, "narrowed in `fit`", "`compact(model)`", "noise", "measured"]]
    for model, shape, backend, ratios, facts in timed(whole):
        cells = _row(ratios, (*PRUNING, *NARROWED, NOISE))
        hardware = facts["hardware"]
        cpu = hardware["cpu"].replace("(R)", "").replace(" Processor", "")
        when = f"{facts['date'][:10]}, {hardware['cores']} cores, {cpu}"
        lines.append([model, shape, BACKENDS[backend], *cells, when])
    return table(lines)


def whole_models() -> str:
    """Every measured whole model."""
    old = [facts["date"] for *_, facts in timed(True) if facts["date"] < PROVEN]
    unproven = f" Rows measured before {PROVEN} lack this check." if old else ""
    return (
        f"{_timed_table(True)}\n\nRatios of the time of a training step in `fit`: "
        "median (95% bootstrap interval). Lower is better. While pruning, the ratio is "
        "to the plain wide model. Once narrowed, it is to a model that was built "
        "narrow. The benchmark fails if nothing was pruned: masks must have the "
        "scheduled width, the weights of pruned neurons must be zero, and narrow "
        f"kernels must be narrow.{unproven}"
    )


def ffns_alone() -> str:
    """Models of FFNs alone, where pruning has least to hide behind."""
    return _timed_table(False)


def peers() -> str:
    """Our rows of the comparison with other libraries."""
    known = _read(RESULTS / "peers.json")["peers"]
    header = ["backend", "shape", "`compact`", "before pruning", "pruning"]
    lines = [[*header, "after narrowing"]]
    names = ("waiting / wide", "pruning / wide", "afterwards / narrow")
    for name, peer in PEERS.items():
        if peer.script != "keras_idea":
            continue
        for shape, found in known[name].items():
            for way, row in found["rows"].items():
                compact = way.removeprefix("compact=")
                cells = _row(row["ratios"], names)
                lines.append([BACKENDS[peer.backend], shape, compact, *cells])
    return table(lines)


def run_prices() -> str:
    """Seconds of whole runs, however the model gets narrow."""
    found = {
        said: _read(RESULTS / f"run_price-{backend}.json")
        for backend, said in BACKENDS.items()
    }
    ways = ("masked to the end", "end", "progressive", "plain wide", "plain narrow")
    header = ['`compact="off"`', '`"end"`', '`"progressive"`', *ways[3:], "rounds"]
    lines = [["seconds per run", *header]]
    for said, facts in found.items():
        rounds = facts["rounds"]
        whole = [statistics.median(r[way]["whole"] for r in rounds) for way in ways]
        lines.append([said, *(f"{s:.0f}" for s in whole), f"{len(rounds)}"])
    facts = next(iter(found.values()))
    steps = " + ".join(map(str, facts["steps"]))
    return (
        f"Each run has {steps} steps (wide, pruning, recovery). The times include "
        f"every compilation:\n\n{table(lines)}"
    )


def narrowing_price() -> str:
    """How many more neurons a run computes than if it followed its masks."""
    prices = {compact: [] for compact in ("progressive", "end")}
    begin, prune, total = 500, 250, 1000
    for full, target in WIDTHS:
        width = CubicWidth(full, target, begin, prune)
        least = sum(width(step) for step in range(total))
        for compact, found in prices.items():
            narrowings = compaction_widths(compact, [width], begin + prune)
            due = {0: full, **{step: only for step, (only,) in narrowings.items()}}
            held = sum(due[max(s for s in due if s <= step)] for step in range(total))
            found.append(100 * (held / least - 1))
    return (
        "With half of the steps wide and a quarter pruning, it computes "
        f"{span(prices['progressive'], 1)}% more FFN FLOPs than a run that narrows at "
        f'every step. `compact="end"` computes {span(prices["end"], 0)}% more.'
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "cheap": cheap,
    "speed-in-short": in_short,
    "speed-whole-models": whole_models,
    "speed-ffns": ffns_alone,
    "speed-peers": peers,
    "run-prices": run_prices,
    "narrowing-price": narrowing_price,
}
