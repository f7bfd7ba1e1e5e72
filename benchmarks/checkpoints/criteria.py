"""Which neurons of a released checkpoint are cut best, by criteria of one pass.

    KERAS_BACKEND=torch python -m benchmarks.checkpoints.criteria smollm2 SOURCE \
        --text ../shared/data/text

One pass of the wide model over calibration rows gives, of each FFN, the products of
what its down kernel reads; all criteria rank by them. SOURCE is what
`keras_idea.hub.load` takes. Each cell is a file of --folder, with the machine it ran
on; what is there is not computed again. `--table` writes
benchmarks/results/criteria.md of all cells.

Shapes: F neurons, D outputs of the down kernel.
"""

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras
import numpy as np
from keras import ops

import keras_idea as ki
from benchmarks import record
from benchmarks.checkpoints.cells import CALIBRATION, LENGTH, SHARES, inputs
from benchmarks.checkpoints.cells import judged as judged_on_all
from benchmarks.checkpoints.texts import HELD_OUT, Texts, read_texts
from keras_idea.functional.activation import activation_sums
from keras_idea.methods.calibration import Calibration, captured
from keras_idea.methods.captures import capture_of

RESULTS = record.REPOSITORY / "benchmarks" / "results"
WIKI_CHARACTERS = 400_000
#: Samples of a batch of the pass: few batches, as each is added up in float64.
AT_A_TIME = 32
#: Of OBS: neurons that go at once, and what is added to the products' diagonal, in
#: units of its mean.
AT_ONCE, DAMPING = 32, 1e-2


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What one pass has found of an FFN, float64.

    Attributes:
        gram: `(F, F)`, the mean product of the hidden activations.
        mean: `(F,)`, of the hidden activations.
        norm: `(F,)`, the mean over samples of the L2 norm over the sequence.
    """

    gram: np.ndarray
    mean: np.ndarray
    norm: np.ndarray


#: Of an FFN, the weights of a neuron in each row, float64: `(F, ...)`. The last reads
#: the neurons.
Kernels: TypeAlias = Sequence[np.ndarray]


def activation(found: Statistics, kernels: Kernels) -> np.ndarray:
    """Minitron's, as `keras_idea.methods.Activation`: it never looks at the weights."""
    return found.norm


def wanda_sp(found: Statistics, kernels: Kernels) -> np.ndarray:
    """`|W_i| sqrt(G_ii)`: Wanda (arXiv 2306.11695), of whole rows."""
    return np.linalg.norm(kernels[-1], axis=1) * np.sqrt(np.diagonal(found.gram))


def flap(found: Statistics, kernels: Kernels) -> np.ndarray:
    """`C_ii |W_i|^2`, C the covariance: FLAP (arXiv 2312.11983), in each layer."""
    variance = np.diagonal(found.gram) - found.mean**2
    return variance * np.square(kernels[-1]).sum(axis=1)


def spans(found: Statistics, kernels: Kernels) -> np.ndarray:
    """`sqrt(G_ii)` by the spans of a neuron's weights: optipfair's, with data.

    The span of a kernel's weights is their maximum and the size of their minimum, in
    units of the largest; of all kernels it is added up. Source: arXiv 2512.22671, and
    `compute_neuron_pair_importance_maw_hybrid` of optipfair 0.4.2. It adds up the
    norms of batches; here it is one norm over all tokens.
    """
    each = [kernel.max(axis=1) + np.abs(kernel.min(axis=1)) for kernel in kernels]
    added = sum(span / span.max() for span in each)
    return added * np.sqrt(np.diagonal(found.gram))


def obs(found: Statistics, kernels: Kernels, at_once: int = AT_ONCE) -> np.ndarray:
    """Structured OBS: how late a neuron goes, if those go first that cost least.

    `|W_i|^2 / (G^-1)_ii` is what the squared error of the outputs grows by without
    neuron i, if all others are fitted again. The `at_once` smallest go, the others are
    fitted, and so on. Source: ZipLM (arXiv 2302.04089), SlimGPT (arXiv 2412.18110).
    """
    kernel = np.array(kernels[-1], "float64")
    left = np.arange(len(kernel))
    damping = DAMPING * np.diagonal(found.gram).mean()
    inverse = np.linalg.inv(found.gram + damping * np.eye(len(left)))
    scores = np.zeros(len(left))
    while len(left):
        costs = np.square(kernel).sum(axis=1) / np.diagonal(inverse)
        order = np.argsort(costs, kind="stable")
        gone, stay = order[:at_once], np.sort(order[at_once:])
        scores[left[gone]] = len(scores) - len(left) + np.arange(len(gone))
        among = inverse[:, gone] @ np.linalg.inv(inverse[np.ix_(gone, gone)])
        kernel = (kernel - among @ kernel[gone])[stay]
        inverse = (inverse - among @ inverse[gone])[np.ix_(stay, stay)]
        left = left[stay]
    return scores


CRITERIA: dict[str, Callable[[Statistics, Kernels], np.ndarray]] = {
    "activation": activation,
    "Wanda-sp": wanda_sp,
    "FLAP": flap,
    "OBS": obs,
    "optipfair": spans,
}


class Ranked(ki.methods.Method):
    """Ranks by given numbers, a row each FFN."""

    name = "ranked"

    def __init__(self, scores: list[np.ndarray]) -> None:
        self.scores = scores

    def importance(self, model, groups, samples):
        """The numbers; see `Method.importance`."""
        return [ops.convert_to_tensor(row, "float32") for row in self.scores]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A checkpoint cut in one step, and judged.

    Attributes:
        share: float, of the neurons that stay.
        criterion: str, a key of `CRITERIA`.
        text: str, the domain of the calibration rows: one of `HELD_OUT`.
        refit: bool.
    """

    share: float
    criterion: str
    text: str
    refit: bool

    @property
    def name(self) -> str:
        """str, of its file."""
        refit = "+refit" if self.refit else ""
        return f"{self.share:g}-{self.criterion}-{self.text}{refit}"


#: In the order in which they are computed. Activations of OpenWebText are in the
#: study of checkpoints.
CELLS = [
    Cell(share, criterion, text, refit)
    for share in sorted(SHARES, key=lambda share: abs(share - 0.67))
    for text in HELD_OUT
    for refit in (False, True)
    for criterion in CRITERIA
    if (criterion, text) != ("activation", HELD_OUT[0])
]


def statistics_of(model: keras.Model, data) -> list[Statistics]:
    """One pass over the samples, for all FFNs."""
    captures = [capture_of(ffn, _sums) for ffn in ki.find_ffns(model)]
    samples = Calibration(data, CALIBRATION, AT_A_TIME)
    found = captured(model, captures, samples, eager=True)
    return [_of_sums(sums, samples) for sums, samples in found]


def _sums(hidden, mask):
    """The products of the activations and a one, and below them the norms' sums."""
    hidden = ops.cast(hidden, "float32")
    flat = ops.reshape(hidden, (-1, hidden.shape[-1]))
    flat = ops.concatenate([flat, ops.ones_like(flat[:, :1])], axis=1)
    norms, samples = activation_sums(hidden, mask)
    row = ops.concatenate([norms, ops.zeros_like(norms[:1])])
    gram = ops.matmul(ops.transpose(flat), flat)
    return ops.concatenate([gram, row[None]]), samples


def _of_sums(sums, samples):
    gram = sums[:-1] / sums[-2, -1]
    return Statistics(gram[:-1, :-1], gram[-1, :-1], sums[-1, :-1] / samples)


def ranked(model: keras.Model, data) -> dict[str, list[np.ndarray]]:
    """Criterion -> the scores of each FFN, all of one pass."""
    kernels = [_kernels(ffn) for ffn in ki.find_ffns(model)]
    pairs = list(zip(statistics_of(model, data), kernels, strict=True))
    return {name: [rule(*pair) for pair in pairs] for name, rule in CRITERIA.items()}


def _kernels(ffn):
    found = [ops.convert_to_numpy(k.value).astype("float64") for k in ffn.kernels]
    return [*(kernel.T for kernel in found[:-1]), found[-1]]


def calibration_texts(folder: pathlib.Path, model) -> dict[str, Texts]:
    """Domain -> the texts, with rows to calibrate on of this domain."""
    texts = read_texts(folder, model)
    encode = ki.data.tokenizer_vocabulary(model.preprocessor.tokenizer).encode
    wiki = (folder / "wikitext2" / "train_1mb.txt").read_text("utf-8")
    train = np.asarray(encode(wiki[:WIKI_CHARACTERS]), "int32")
    wiki_texts = dataclasses.replace(texts, train=train)
    return dict(zip(HELD_OUT, (texts, wiki_texts), strict=True))


def carry_out(cell: Cell, model: keras.Model, scores, data) -> keras.Model:
    """The model of a cell; `scores`: those of its criterion."""
    full = model.backbone.intermediate_dim
    targets = {"neurons": 32 * round(cell.share * full / 32)}
    how = {"method": Ranked(scores), "refit": cell.refit, "batch_size": 8}
    return ki.shrink(model, targets, data, **how)


def compute(arguments: argparse.Namespace) -> None:
    """Computes the cells that are not there."""
    until = time.monotonic() + 60 * arguments.minutes
    folder = arguments.folder / arguments.name
    folder.mkdir(parents=True, exist_ok=True)
    wide = ki.hub.load(arguments.source, "float32")
    texts = calibration_texts(arguments.text, wide)
    wide.preprocessor = None
    facts = record.environment()
    places = {
        arguments.source: "SOURCE",
        str(arguments.text): "TEXT",
        str(arguments.folder): "FOLDER",
    }
    words = shlex.join(places.get(word, word) for word in sys.argv[1:])
    facts["command"] = (
        f"KERAS_BACKEND={keras.backend.backend()} python -m "
        f"benchmarks.checkpoints.criteria {words}"
    )
    scores: dict[str, dict] = {}
    for cell in CELLS:
        path = folder / f"{cell.name}.json"
        skipped = bool(arguments.shares) and cell.share not in arguments.shares
        skipped |= cell.criterion not in arguments.criteria
        skipped |= cell.text not in arguments.domains
        if path.exists() or skipped or time.monotonic() > until:
            continue
        began = time.monotonic()
        data = inputs(texts[cell.text].rows(CALIBRATION, LENGTH, seed=0)[:, :-1])
        if cell.text not in scores:
            scores[cell.text] = ranked(wide, data)
        model = carry_out(cell, wide, scores[cell.text][cell.criterion], data)
        found = judged_on_all(model, texts[cell.text])
        seconds = round(time.monotonic() - began, 1)
        found = {**vars(cell), **found, "seconds": seconds, **facts}
        path.with_suffix(".new").write_text(json.dumps(found, indent=1) + "\n")
        path.with_suffix(".new").rename(path)
        nats = ", ".join(f"{name} {found[name]:.4f}" for name in HELD_OUT)
        print(f"{cell.name}: {nats} nats per token, {seconds} s", flush=True)


def write(folder: pathlib.Path, results: pathlib.Path) -> None:
    """Writes criteria.md of all cells in a folder, and prints it.

    The folder beside it of the same checkpoint has those of activations.
    """
    cells = {
        part.name: [json.loads(p.read_text()) for p in sorted(part.glob("*.json"))]
        + _of_checkpoints(folder.parent / part.name)
        for part in sorted(folder.iterdir(), reverse=True)
    }
    text = markdown(cells)
    (results / "criteria.md").write_text(text, encoding="utf-8")
    print(text)


def _of_checkpoints(folder: pathlib.Path) -> list[dict]:
    """The cells of activations of OpenWebText, as this study's."""
    found = []
    for share, refit in itertools.product(SHARES, (False, True)):
        cell = Cell(share, "activation", HELD_OUT[0], refit)
        path = folder / f"{cell.share:g}-activation{'+refit' * refit}.json"
        if path.exists():
            found.append(json.loads(path.read_text()) | vars(cell))
    return found


def markdown(cells: dict[str, list[dict]]) -> str:
    """The page of the cells of each checkpoint."""
    lines = [
        "# Criteria for one shot",
        "",
        "Perplexity per token of held-out OpenWebText / WikiText-2, as in "
        "[checkpoints.md](checkpoints.md), of models that were cut in one step and "
        "not trained. All criteria are of one pass over "
        f"{CALIBRATION * LENGTH:,} tokens. One seed. CPU. Lower is better.",
    ]
    for name, found in cells.items():
        lines += ["", f"## {name}", "", *_table(found)]
    machines = {
        f"{c['hardware']['cpu']}, {c['hardware']['cores']} cores; {c['date'][:10]}; "
        f"{', '.join(f'{n} {v}' for n, v in c['versions'].items())}"
        for found in cells.values()
        for c in found
    }
    return "\n".join([*lines, "", *(f"- {m}" for m in sorted(machines))]) + "\n"


def _table(found: list[dict]) -> list[str]:
    lines = [
        f"| neurons kept | calibrated on | refit | {' | '.join(CRITERIA)} |",
        "|" + "---|" * (3 + len(CRITERIA)),
    ]
    by_key = {(c["share"], c["text"], c["refit"], c["criterion"]): c for c in found}
    for share, text, refit in itertools.product(SHARES, HELD_OUT, (False, True)):
        row = [by_key.get((share, text, refit, name)) for name in CRITERIA]
        if any(row):
            figures = " | ".join(_figures(cell) for cell in row)
            refitted = "yes" if refit else "no"
            lines.append(f"| {share:g} | {text} | {refitted} | {figures} |")
    return lines


def _figures(cell: dict | None) -> str:
    if cell is None:
        return "–"
    return " / ".join(f"{math.exp(cell[name]):,.2f}" for name in HELD_OUT)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.criteria")
    parser.add_argument("name", nargs="?", help="of the checkpoint: smollm2, gemma3")
    parser.add_argument("source", nargs="?", help="folder, preset or GGUF file")
    parser.add_argument("--text", type=pathlib.Path, default="../shared/data/text")
    folder = RESULTS / "checkpoints" / "criteria"
    parser.add_argument("--folder", type=pathlib.Path, default=folder)
    parser.add_argument("--shares", type=float, nargs="+", help="some of them")
    every = list(CRITERIA)
    parser.add_argument("--criteria", nargs="+", choices=every, default=every)
    domains = "to calibrate on"
    parser.add_argument("--domains", nargs="+", default=HELD_OUT, help=domains)
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no later")
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    arguments = parser.parse_args()
    if arguments.table:
        write(arguments.folder, RESULTS)
    else:
        compute(arguments)


if __name__ == "__main__":
    main()
