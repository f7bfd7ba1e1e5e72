"""The learning rate of a stage, as data."""

import dataclasses

from keras.optimizers.schedules import LearningRateSchedule

from keras_idea.schedules import CosineDecay, StagedSchedule, WarmupStableDecay
from keras_idea.schedules.learning_rate import AnnealedCosine

#: shape: the schedule's class.
SHAPES = {
    "cosine": CosineDecay,
    "annealed": AnnealedCosine,
    "stable": WarmupStableDecay,
}


@dataclasses.dataclass(frozen=True)
class Rate:
    """A stretch of one of the paper's curves: eta(t; T) from t = `first` on.

    As in Algorithm 1 steps count from 1: the stage's first update uses
    eta(first), and `first=1` begins a curve.

    Attributes:
        shape: "cosine", "annealed" or "stable".
        peak: float, the curve's highest rate.
        end: float, its last.
        total: int, T.
        warmup: int, T_0.
        first: int >= 1, the t of the stage's first step.
        decay: int or None, steps at the end in which "stable" decays; None: a fifth.
    """

    shape: str
    peak: float
    end: float
    total: int
    warmup: int
    first: int = 1
    decay: int | None = None

    def schedule(self, iterations: int = 0) -> LearningRateSchedule:
        """The schedule whose value is eta(first) after so many `iterations`."""
        decay = {} if self.decay is None else {"decay_steps": self.decay}
        behind = iterations >= self.first
        curve = SHAPES[self.shape](
            self.peak,
            self.end,
            self.total,
            self.warmup,
            start_step=self.first - (0 if behind else iterations),
            **decay,
        )
        # A new curve for an optimizer that goes on.
        return StagedSchedule([(curve, iterations), (curve, 1)]) if behind else curve
