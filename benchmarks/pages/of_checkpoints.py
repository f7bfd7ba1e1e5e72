"""What released checkpoints lose, as blocks of pages."""

import functools
import json
import math
from collections.abc import Collection

from benchmarks.checkpoints.table import ORIGINS, excess_removed
from benchmarks.checkpoints.texts import HELD_OUT
from benchmarks.pages.words import table
from benchmarks.record import REPOSITORY

FOLDER = REPOSITORY / "benchmarks" / "results" / "checkpoints"
SHARE = 0.67
TEXTS = {"openwebtext": "OpenWebText", "wikitext2": "WikiText-2"}
#: What is done -> (how, whether it is trained).
STEPS = {
    "not cut, trained as the others": ("control", True),
    "cut in one step (`ki.shrink`)": ("activation", False),
    "cut and refit (`refit=True`)": ("activation, refit", False),
    "cut by optipfair 0.4.2": ("optipfair", False),
    "cut by optipfair 0.4.2, with data": ("optipfair with data", False),
    "cut by Torch-Pruning 1.6.1, magnitude": ("Torch-Pruning, magnitude", False),
    "cut by Torch-Pruning 1.6.1, Taylor": ("Torch-Pruning, Taylor", False),
    "pruned in `fit`, with a teacher": ("gradual, logits", True),
    "pruned in `fit`, with a teacher and its block outputs": ("gradual", True),
    "cut, refit and recovered, no teacher": ("refit, text alone", True),
    "cut, refit and recovered with a teacher": ("refit, logits", True),
    "cut `by_weights`, refit, recovered with a teacher": (
        "refit by weights, logits",
        True,
    ),
    "cut, refit and recovered with both": ("refit", True),
}


@functools.cache
def cells(name: str) -> list[dict]:
    """Those of a checkpoint."""
    paths = sorted((FOLDER / name).glob("*.json"))
    return [json.loads(path.read_text("utf-8")) for path in paths]


def each(name: str, how: str, trained: bool, share: float = SHARE) -> list[dict]:
    """A cell for each number of tokens, at the best of its peaks."""
    found: dict[int, dict] = {}
    for cell in sorted(cells(name), key=lambda c: (c["tokens"], -c["openwebtext"])):
        if (cell["share"], cell["how"]) == (share, how):
            found[cell["tokens"]] = cell
    return [cell for tokens, cell in found.items() if bool(tokens) == trained]


def _one(name: str, how: str, share: float) -> dict | None:
    """The cell of what is not trained; None: not run."""
    return next(iter(each(name, how, False, share)), None)


#: Left out where there is little room: what peers do by default, far from the rest;
#: and what the last line is like, or behind it.
_LEFT_OUT = {
    "cut by optipfair 0.4.2",
    "cut by Torch-Pruning 1.6.1, magnitude",
    "cut, refit and recovered, no teacher",
    "cut, refit and recovered with a teacher",
    "cut `by_weights`, refit, recovered with a teacher",
}


def short(left_out: Collection[str] = (), names: Collection[str] = ORIGINS) -> str:
    """A table a checkpoint: two thirds of the neurons."""
    lines = [["two thirds of the neurons", "parameters", "tokens", *TEXTS.values()]]
    for name in names:
        origin = ORIGINS[name]
        wide = _one(name, "as it is", 1.0)
        if wide is None:
            continue
        lines.append([f"**{origin.partition(',')[0]}**, as it is", *_row(name, wide)])
        steps = {k: step for k, step in STEPS.items() if k not in left_out}
        lines += [
            [label, *_row(name, cell)]
            for label, step in steps.items()
            for cell in each(name, *step)
        ]
    return (
        f"{table(lines)}\n\nPerplexity per token of held-out text, in windows of 256; "
        "tokens: of OpenWebText, to recover on. In parentheses: the share of the "
        "excess loss of the cut that is removed (negative: added). Both are "
        "dequantized from 4 bits. CPU, one seed "
        "([every cell](benchmarks/results/checkpoints.md))."
    )


def _row(name, cell):
    tokens = f"{cell['tokens']:,}" if cell["tokens"] else "0"
    figures = [_figure(name, cell, text) for text in HELD_OUT]
    return [f"{cell['parameters'] / 1e6:.1f}M", tokens, *figures]


def _figure(name, cell, text):
    found = f"{math.exp(cell[text]):,.1f}"
    if not cell["tokens"] or cell["how"] == "control":
        return found
    wide, cut = _one(name, "as it is", 1.0), _one(name, "activation", SHARE)
    return f"{found} ({excess_removed(wide[text], cut[text], cell[text]):.0%})"


BLOCKS = {
    "readme-checkpoints": functools.partial(short, _LEFT_OUT, ("smollm2", "gemma3")),
    "checkpoints": lambda: short().replace("(benchmarks/", "(../benchmarks/"),
}
