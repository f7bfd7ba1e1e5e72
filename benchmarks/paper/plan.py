"""From a cell to the stages that carry it out: a pure function."""

import dataclasses

from benchmarks.paper.build import OPTIMIZERS
from benchmarks.paper.cell import (
    INTEGRATED,
    INTERMEDIATE,
    NAIVE,
    RESTARTED,
    RESUMED,
    SAME_FLOPS,
    SCRATCH,
    Cell,
)
from benchmarks.paper.flops import stage_flops, step_flops
from benchmarks.paper.methods import METHODS
from benchmarks.paper.rate import Rate


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What the pruning callback of a stage is told; steps count within the stage.

    Attributes:
        method: str, a key of `METHODS`.
        target: int, neurons to keep in each FFN.
        begin: int, steps at full width before pruning.
        steps: int, steps from full width to the target.
        update_every: int, steps between two masks.
        compact: "end", "progressive" or "off".
    """

    method: str
    target: int
    begin: int
    steps: int
    update_every: int
    compact: str

    @property
    def end(self) -> int:
        """The stage's step after which the target is reached."""
        return self.begin + self.steps


@dataclasses.dataclass(frozen=True)
class Stage:
    """One `fit`.

    Attributes:
        name: str, "enlarge", "prune", "recover", "prune and recover" or "train".
        width: int, neurons of each FFN when it begins.
        steps: int, optimizer steps.
        first_batch: int, the number of its first batch: all pipelines read the
            same batches at the same time.
        rate: `Rate`.
        optimizer: str, a key of `OPTIMIZERS`.
        fresh: bool, whether the optimizer (and the scores) start anew.
        scores: (ema_decay, row_reduce, matrix_reduce) of prunable FFNs; None:
            plain ones.
        pruning: `Pruning` or None.
        teacher: `Stage` or None: the run whose last model teaches.
    """

    name: str
    width: int
    steps: int
    first_batch: int
    rate: Rate
    optimizer: str
    fresh: bool = True
    scores: tuple | None = None
    pruning: Pruning | None = None
    teacher: "Stage | None" = None

    @property
    def shared(self) -> bool:
        """Whether its end is a checkpoint that other cells may begin with."""
        scored = self.scores is not None
        return scored and self.pruning is None and self.teacher is None


def _split_steps(cell, scale):
    """Optimizer steps `(T_l, T_p, T_r)`; `T_p` is 0 for a one-shot method."""
    total = max(2, round(cell.budget * scale.total_steps))
    enlarge = min(max(1, round(total * cell.enlarge_share)), total - 1)
    rest = total - enlarge
    prune = (
        0 if METHODS[cell.method].one_shot else max(1, round(rest * cell.prune_share))
    )
    return enlarge, prune, rest - prune


def plan(cell, scale) -> tuple[Stage, ...]:
    """The stages of a cell, in their order.

    Example:
    >>> [stage.name for stage in plan(Cell(), SCALES["tiny"])]
    ['enlarge', 'prune and recover']
    """
    return _scratch(cell, scale) if cell.pipeline == SCRATCH else _pruned(cell, scale)


def _scratch(cell, scale):
    total = _scratch_steps(cell, scale)
    wide = cell.target == cell.hidden
    stage = Stage(
        "train",
        scale.width(cell.target),
        max(1, round(total * cell.stop)),
        0,
        _rate(cell, scale, total),
        cell.optimizer,
        # The enlarged model may be pruned later, so its neurons are scored.
        scores=_scores(cell) if wide else None,
        teacher=_teacher(cell, scale),
    )
    return (stage,)


def _scratch_steps(cell, scale):
    if cell.budget != SAME_FLOPS:
        return max(2, round(cell.budget * scale.total_steps))
    pruned = dataclasses.replace(
        cell,
        pipeline=INTEGRATED,
        initialisation=None,
        learning_rate=None,
        budget=cell.flops_of,
    )
    paid = sum(stage_flops(stage, scale) for stage in plan(pruned, scale))
    return max(2, paid // step_flops(scale, scale.width(cell.target)))


def _pruned(cell, scale):
    enlarge, prune, recover = _split_steps(cell, scale)
    rest = prune + recover
    total = enlarge + rest
    horizon = total if cell.initialisation == INTERMEDIATE else enlarge
    resumed = cell.learning_rate == RESUMED
    first = Stage(
        "enlarge",
        scale.width(cell.hidden),
        enlarge,
        0,
        _rate(cell, scale, horizon),
        cell.optimizer,
        scores=_scores(cell),
    )
    # Three schedules where there are three stages; a one-shot method has two.
    separate = cell.pipeline == NAIVE and prune > 0 and recover > 0
    steps = prune if separate else rest
    pruning = dataclasses.replace(
        first,
        name="prune" if separate else "prune and recover",
        steps=steps,
        first_batch=enlarge,
        rate=_rate(cell, scale, total, enlarge + 1)
        if resumed
        else _rate(cell, scale, steps, factor=cell.restart),
        fresh=cell.learning_rate == RESTARTED,
        pruning=_pruning(cell, scale, prune, steps),
        teacher=_teacher(cell, scale),
    )
    if not separate:
        return first, pruning
    last = Stage(
        "recover",
        scale.width(cell.target),
        recover,
        enlarge + prune,
        _rate(cell, scale, recover, factor=cell.restart),
        cell.optimizer,
        teacher=_teacher(cell, scale),
    )
    return first, pruning, last


def _pruning(cell, scale, prune, steps):
    resumed = cell.learning_rate == RESUMED
    waits = cell.wait and METHODS[cell.method].awaits_warmup and not resumed
    begin = _warmup(scale, steps) if waits else 0
    return Pruning(
        cell.method,
        scale.width(cell.target),
        begin,
        # It must end within the stage, whose warm-up the waiting took.
        max(1, min(prune, steps - begin)),
        cell.update_every,
        cell.compact,
    )


def _teacher(cell, scale):
    """The enlarged model trained under the whole schedule, if there is a teacher."""
    if not cell.distillation:
        return None
    wide = Cell(
        pipeline=SCRATCH,
        hidden=cell.hidden,
        target=cell.hidden,
        optimizer=cell.optimizer,
        schedule=cell.schedule,
    )
    return plan(wide, scale)[0]


def _rate(cell, scale, total, first=1, factor=1.0):
    annealed = scale.anneal and cell.schedule == "cosine"
    peak = OPTIMIZERS[cell.optimizer].peak * cell.peak
    return Rate(
        "annealed" if annealed else cell.schedule,
        factor * peak * scale.peak_learning_rate,
        peak * scale.end_learning_rate,
        total,
        _warmup(scale, total),
        first,
    )


def _warmup(scale, total):
    """The warm-up of a schedule; at most a quarter of a short one."""
    return min(scale.warmup_steps, total // 4)


def _scores(cell):
    return (cell.ema_decay, cell.row_reduce, cell.matrix_reduce)
