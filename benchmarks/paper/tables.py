"""The tables: rows as data, of the paper and of what its readers missed."""

import dataclasses
import types

from benchmarks.paper.cell import (
    DECAYED,
    INTEGRATED,
    INTERMEDIATE,
    NAIVE,
    RESTARTED,
    RESUMED,
    SAME_FLOPS,
    SCRATCH,
    Cell,
)
from benchmarks.paper.methods import METHODS


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: str, unique in the table.
        cell: `Cell`.
        reference: str or None, the row that it is compared with, seed by seed.
    """

    name: str
    cell: Cell
    reference: str | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: str.
        paper: str, what the paper reports, or that it does not.
        rows: tuple of `Row`.
        cautions: tuple of str, what its readers must know.
    """

    title: str
    paper: str
    rows: tuple
    cautions: tuple[str, ...] = ()


_NAIVE = (
    "The learning rates of the naive pipelines were not searched: all their stages "
    "have the peak of the other rows."
)
_OPTIMIZERS = (
    "Each optimizer's factor of the learning rate is the best of a search from scratch "
    "with one seed, which is not recorded. It was not searched for pruned runs, "
    "which the study in optimizers/optimizers.md does."
)
IDEA = "sensitivity, integrated (IDEA)"
SAME_TOKENS = "from scratch, the same tokens"
#: The paper's own method stands last.
_OWN = Cell().method
_RIVALS = {name: row.label for name, row in METHODS.items() if name != _OWN}
_WIDE = Cell().hidden
_AGAINST_SCRATCH = ("from scratch", "pruned")
_BOTH = ("naive", "integrated")


def _scratch(**changes):
    return Cell(pipeline=SCRATCH, **changes)


def _wide(**changes):
    return _scratch(target=_WIDE, **changes)


def _main():
    baselines = [
        Row(f"{label}, naive", Cell(pipeline=NAIVE, method=method), SAME_TOKENS)
        for method, label in _RIVALS.items()
    ]
    return (
        Row("enlarged, half the tokens", _wide(budget=0.5)),
        Row("from scratch, half the tokens", _scratch(budget=0.5), SAME_TOKENS),
        Row(SAME_TOKENS, _scratch()),
        Row("from scratch, the same FLOPs", _scratch(budget=SAME_FLOPS), SAME_TOKENS),
        *baselines,
        Row(IDEA, Cell(), SAME_TOKENS),
    )


def _initialisation():
    def pruned(initialisation, rate):
        cell = Cell(initialisation=initialisation, learning_rate=rate)
        name = f"pruned from {initialisation}, {rate}"
        return Row(name, cell, None if name == best else best)

    best = f"pruned from {INTERMEDIATE}, {RESUMED}"
    return (
        Row("enlarged, intermediate checkpoint", _wide(stop=0.5)),
        pruned(INTERMEDIATE, RESUMED),
        pruned(INTERMEDIATE, RESTARTED),
        Row("enlarged, decayed checkpoint", _wide(budget=0.5)),
        pruned(DECAYED, RESUMED),
        pruned(DECAYED, RESTARTED),
    )


def _series(field, values, label, *names):
    """Two rows for each value of a field; the second, integrated, against the first."""
    pipeline = {"naive": NAIVE, "from scratch": SCRATCH}[names[0]]
    rows = []
    for value in values:
        first, second = (f"{label(value)}, {name}" for name in names)
        rows += [
            Row(first, Cell(pipeline=pipeline, **{field: value})),
            Row(second, Cell(**{field: value}), first),
        ]
    return tuple(rows)


def _every_method():
    methods = (*_RIVALS, _OWN)
    return _series("method", methods, lambda m: METHODS[m].label, *_BOTH)


def _distillation():
    without = "pruning without distillation"
    return (
        Row("the teacher: enlarged, all tokens", _wide()),
        Row(without, Cell()),
        Row(
            "from scratch with distillation, half the tokens",
            _scratch(budget=0.5, distillation=True),
            without,
        ),
        Row("pruning with distillation", Cell(distillation=True), without),
    )


def _enlarged_size():
    rows = [Row(SAME_TOKENS, _scratch())]
    for ratio in (4 / 3, 2.0, 8 / 3, 4.0, 16 / 3):
        rows.append(Row(f"enlarged {ratio:.2g} times", Cell(hidden=ratio), SAME_TOKENS))
    return tuple(rows)


def _hyperparameters():
    default = "f1 = mean, f2 = max"
    rows = [
        Row(
            f"enlarged {enlarge:.0%}, pruning {prune:.0%} of the rest",
            Cell(enlarge_share=enlarge, prune_share=prune),
            default,
        )
        for enlarge in (0.1, 0.3, 0.5)
        for prune in (0.1, 0.3, 0.5, 0.7)
    ]
    for row in ("mean", "max"):
        for matrix in ("max", "mean"):
            name = f"f1 = {row}, f2 = {matrix}"
            cell = Cell(row_reduce=row, matrix_reduce=matrix)
            rows.append(Row(name, cell, None if name == default else default))
    for decay in (0.3, 0.4, 0.5, 0.8):
        rows.append(Row(f"lambda = {decay}", Cell(ema_decay=decay), default))
    return tuple(rows)


def _frequency():
    every = "a mask every step"
    rows = [Row(every, Cell())]
    for steps in (5, 25, 125):
        rows.append(Row(f"every {steps} steps", Cell(update_every=steps), every))
    # One mask alone: longer than any pruning stage.
    once = Cell(update_every=1_000_000)
    return (*rows, Row("once, at the end of pruning", once, every))


def _token_split():
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    label = "enlarged {:.0%} of the tokens".format
    return _series("enlarge_share", shares, label, *_BOTH)


def _pipelines(changes, label, references=None):
    """From scratch, naive and integrated, with some fields of all changed."""
    rows = []
    for pipeline in (SCRATCH, NAIVE, INTEGRATED):
        name = f"{label}, {pipeline}"
        against = references[pipeline] if references else f"{label}, {SCRATCH}"
        cell = Cell(pipeline=pipeline, **changes)
        rows.append(Row(name, cell, None if against == name else against))
    return rows


def _stable():
    cosine = {p: f"cosine, {p}" for p in (SCRATCH, NAIVE, INTEGRATED)}
    return (
        *_pipelines({}, "cosine"),
        *_pipelines({"schedule": "stable"}, "warm-up, stable, decay", cosine),
    )


def _optimizers():
    rows = []
    for name in ("adamw", "lion", "muon", "adafactor"):
        rows += _pipelines({"optimizer": name}, name)
    return tuple(rows)


def _ratios():
    targets = (1 / 3, 2 / 3, 1.0, 4 / 3, 2.0)
    return _series(
        "target", targets, lambda t: f"{t / _WIDE:.1%} kept", *_AGAINST_SCRATCH
    )


def _budgets():
    label = "{:.2g} of the tokens".format
    return _series("budget", (1 / 3, 2 / 3, 1.0), label, *_AGAINST_SCRATCH)


TABLES = types.MappingProxyType(
    {
        1: Table(
            "Enlarge and prune against training from scratch",
            "OpenWebText perplexity: from scratch 9.10 (half the tokens) and 8.95; "
            "naive random 8.98, activation 8.97, learned mask 8.96; IDEA 8.88.",
            _main(),
            (_NAIVE,),
        ),
        2: Table(
            "Initialisation and learning rate",
            "Intermediate: resumed 8.88, restarted 8.94; decayed: 8.89 and 8.95.",
            _initialisation(),
        ),
        3: Table(
            "The integrated pipeline with every method",
            "Naive to integrated: random 8.98 to 8.93, activation 8.97 to 8.92, "
            "learned mask 8.96 to 8.89.",
            _every_method(),
            (_NAIVE,),
        ),
        4: Table(
            "Distillation",
            "Pruning 8.879; from scratch with distillation 8.949; both 8.862.",
            _distillation(),
        ),
        5: Table(
            "Size of the enlarged model",
            "All sizes from 1.3 to 5.3 times beat training from scratch; best 2.6.",
            _enlarged_size(),
        ),
        6: Table(
            "Robustness: stages, f1 and f2, lambda",
            "Best: pruning over about 70 % of what follows, f1 = mean with f2 = max, "
            "lambda 0.3 to 0.5; no choice degrades much.",
            _hyperparameters(),
        ),
        7: Table("Pruning frequency", "Not in the paper.", _frequency()),
        8: Table("Token split", "Not in the paper.", _token_split(), (_NAIVE,)),
        9: Table("Warm-up, stable, decay", "Not in the paper.", _stable(), (_NAIVE,)),
        10: Table(
            "Optimizers", "Not in the paper.", _optimizers(), (_NAIVE, _OPTIMIZERS)
        ),
        11: Table("Target ratios", "Not in the paper.", _ratios()),
        12: Table("Length of the training", "Not in the paper.", _budgets()),
    }
)
