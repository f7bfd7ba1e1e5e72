"""A cell of a table: one way to come by a target-size model, as data."""

import dataclasses
import types

from benchmarks.paper.methods import METHODS
from keras_idea.errors import ArgumentError
from keras_idea.functional.milestones import COMPACT
from keras_idea.validation import check_choice, check_int, check_number

SCRATCH, NAIVE, INTEGRATED = "scratch", "naive", "integrated"
INTERMEDIATE, DECAYED = "intermediate", "decayed"
RESUMED, REWARMED, RESTARTED = "resumed", "rewarmed", "restarted"
#: A budget of as many steps as the FLOPs of the integrated pruned run pay for.
SAME_FLOPS = "flops"


#: pipeline: its initialisation and its learning rate where a cell names none.
PIPELINES = types.MappingProxyType(
    {
        SCRATCH: (DECAYED, RESTARTED),
        NAIVE: (DECAYED, RESTARTED),
        INTEGRATED: (INTERMEDIATE, RESUMED),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to come by a model of the target size, free of any scale.

    Args:
        pipeline: "scratch", "naive" (enlarged, pruned, recovered, each stage under
            a schedule of its own) or "integrated" (all under one schedule).
        method: a key of `METHODS`; of a "scratch" cell it counts only for
            `budget="flops"`.
        initialisation: None (the pipeline's own), "intermediate" (the enlarged
            model at its share of the whole schedule) or "decayed" (the last
            checkpoint of a schedule of its own).
        learning_rate: None (the pipeline's own), "resumed" (the whole schedule
            goes on, with the optimizer's state), "rewarmed" (a new schedule with a
            warm-up, the optimizer's state) or "restarted" (a new optimizer too).
        distillation: bool, whether the fully trained enlarged model teaches.
        hidden: float, neurons of the enlarged FFN, in units of the scale's target.
        target: float, neurons of the final FFN, in the same units. A scratch cell
            trains at this width.
        budget: float, steps in units of the scale's, or "flops".
        flops_of: float, the budget of the pruned run that `budget="flops"` equals.
        peak: float, the peak of the learning rate in units of the scale's; the end
            is as much higher or lower.
        restart: float, the peak of a rewarmed or restarted learning rate after the
            enlarged stage, in units of the cell's.
        wait: bool, whether pruning by sensitivity begins only after the second
            warm-up of such a rate, or with it as `optimizer.rewarm` does.
        stop: float in (0, 1], the share of its schedule after which a scratch
            cell stops: 0.5 gives the intermediate checkpoint at half time.
        enlarge_share: float in (0, 1), the share of all steps spent enlarged.
        prune_share: float in (0, 1], the share of the other steps spent pruning.
        ema_decay: float in [0, 1), the paper's lambda.
        row_reduce: "mean" or "max", the paper's f1.
        matrix_reduce: "mean" or "max", the paper's f2.
        update_every: int >= 1, steps between two masks.
        optimizer: a key of `OPTIMIZERS`.
        schedule: "cosine" or "stable" (warm-up, stable, decay).
        compact: "end", "progressive" or "off", as of `IdeaPruneCallback`.

    Raises:
        ValueError: for a value outside its range, or values that contradict.

    Example:
    >>> Cell(pipeline="naive", method="random").learning_rate
    'restarted'
    """

    pipeline: str = INTEGRATED
    method: str = "sensitivity"
    initialisation: str | None = None
    learning_rate: str | None = None
    distillation: bool = False
    hidden: float = 8 / 3
    target: float = 1.0
    budget: float | str = 1.0
    stop: float = 1.0
    enlarge_share: float = 0.5
    prune_share: float = 0.5
    ema_decay: float = 0.4
    row_reduce: str = "mean"
    matrix_reduce: str = "max"
    update_every: int = 1
    optimizer: str = "adamw"
    schedule: str = "cosine"
    compact: str = "end"
    flops_of: float = 1.0
    peak: float = 1.0
    restart: float = 1.0
    wait: bool = True

    def __post_init__(self):
        check_choice("pipeline", self.pipeline, tuple(PIPELINES))
        check_choice("method", self.method, tuple(METHODS))
        own = zip(("initialisation", "learning_rate"), self._own(), strict=True)
        for name, default in own:
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        check_choice("initialisation", self.initialisation, (INTERMEDIATE, DECAYED))
        rates = (RESUMED, REWARMED, RESTARTED)
        check_choice("learning_rate", self.learning_rate, rates)
        if self.pipeline != INTEGRATED and self._own() != (
            self.initialisation,
            self.learning_rate,
        ):
            raise ArgumentError(
                f"A {self.pipeline} cell is {' and '.join(self._own())} by definition. "
                f"Received: initialisation={self.initialisation!r}, learning_rate="
                f"{self.learning_rate!r}. Use pipeline='integrated' to combine them."
            )
        if self.budget != SAME_FLOPS:
            check_number("budget", self.budget, minimum=1e-6)
        for name in ("flops_of", "peak", "restart"):
            check_number(name, getattr(self, name), minimum=1e-6)
        check_number("target", self.target, minimum=1e-6, maximum=self.hidden)
        for name in ("stop", "enlarge_share", "prune_share"):
            check_number(name, getattr(self, name), minimum=1e-6, maximum=1.0)
        check_int("update_every", self.update_every, minimum=1)
        check_choice("schedule", self.schedule, ("cosine", "stable"))
        check_choice("compact", self.compact, COMPACT)

    def _own(self):
        return PIPELINES[self.pipeline]
