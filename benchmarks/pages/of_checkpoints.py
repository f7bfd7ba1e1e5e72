"""What released checkpoints lose, as blocks of pages."""

import functools
import json
import math
from collections.abc import Collection, Mapping

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
    "cut so, recovered in transformers with a teacher": ("optipfair with data", True),
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
    "cut, refit, recovered with teacher and block outputs": ("refit", True),
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
#: and what is behind the line that is recommended.
_LEFT_OUT = {
    "cut by optipfair 0.4.2",
    "cut by Torch-Pruning 1.6.1, magnitude",
    "cut, refit and recovered, no teacher",
    "cut, refit and recovered with a teacher",
}
#: The README's checkpoints, and what is left out of each.
_README = {
    "smollm2": {
        *_LEFT_OUT,
        "not cut, trained as the others",
        "cut by Torch-Pruning 1.6.1, Taylor",
        "cut, refit, recovered with teacher and block outputs",
    },
    "gemma3": _LEFT_OUT,
}


def short(left_out: Mapping[str, Collection[str]]) -> str:
    """A table a checkpoint: two thirds of the neurons.

    `left_out`: by checkpoint, the steps that are not shown.
    """
    lines = [["two thirds of the neurons", "parameters", "tokens", *TEXTS.values()]]
    for name, hidden in left_out.items():
        origin = ORIGINS[name]
        wide = _one(name, "as it is", 1.0)
        if wide is None:
            continue
        lines.append([f"**{origin.partition(',')[0]}**, as it is", *_row(name, wide)])
        steps = {k: step for k, step in STEPS.items() if k not in hidden}
        lines += [
            [label, *_row(name, cell)]
            for label, step in steps.items()
            for cell in each(name, *step)
        ]
    return (
        f"{table(lines)}\n\nPerplexity per token of held-out text, in windows of 256; "
        "tokens of OpenWebText to recover on, at the best peak tried. In parentheses: "
        "the share of the cut's excess loss that is removed (negative: added). "
        "Dequantized from 4 bits, one seed ([all](benchmarks/results/checkpoints.md))."
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


#: What is done to the encoder -> its cell.
ENCODER = {
    "two thirds of its neurons, in one step": "activation",
    "the same with a refit": "activation, refit",
    "pruned in `fit`": "gradual",
    "refit, then recovered": "refit",
}


def encoder() -> str:
    """How near the embeddings of a narrow encoder are to those of the wide one."""
    found = {cell["how"]: cell for cell in cells("minilm")}
    lines = [["all-MiniLM-L6-v2", "cosine", "rank correlation", "same nearest"]]
    for label, how in ENCODER.items():
        cell = found[how]
        ratios = (f"{cell[name]:.3f}" for name in ("cosine", "rank correlation"))
        lines.append([label, *ratios, f"{cell['same nearest']:.1%}"])
    return table(lines)


#: What was done to SmolLM2 -> its cell of questions.
QUESTIONS = {
    "**SmolLM2-135M-Instruct**, as it is": "as it is",
    "cut `by_weights`, refit": "activation by weights, refit",
    "cut `by_weights`, refit, recovered on 1,048,576 tokens": (
        "refit_by_weights+logits-1048576"
    ),
}


def questions() -> str:
    """How often the right answer is the likeliest."""
    found = {cell["how"]: cell for cell in cells("tasks")}
    lines = [["the right one of four answers", "ARC-Challenge", "HellaSwag"]]
    for label, how in QUESTIONS.items():
        answers = (found[how][task] for task in ("arc_challenge", "hellaswag"))
        lines.append(
            [
                label,
                *(f"{a['acc_norm']:.1%} ± {a['acc_norm_stderr']:.1%}" for a in answers),
            ]
        )
    limit = min(cell["limit"] for cell in found.values())
    return (
        f"{table(lines)}\n\nThe first {limit} questions of each, by "
        "lm-evaluation-harness, normalized by length, with the standard error. A guess "
        "is right in 25%."
    )


BLOCKS = {
    "encoder": encoder,
    "questions": questions,
    "readme-checkpoints": functools.partial(short, _README),
    "checkpoints": lambda: short(dict.fromkeys(ORIGINS, ())).replace(
        "(benchmarks/", "(../benchmarks/"
    ),
}
