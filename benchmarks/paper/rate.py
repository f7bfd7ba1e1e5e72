"""The learning rate of a stage, as data."""

import dataclasses
import math

import keras
import numpy as np
from keras.optimizers.schedules import LearningRateSchedule

from keras_idea.schedules import CosineDecay, StagedSchedule, WarmupStableDecay


class AnnealedCosine(LearningRateSchedule):
    """The cosine counted from the end of the warm-up: it ends at its end rate.

    The paper's divides by T where this divides by T - T_0, so that after a warm-up of a
    quarter of all steps it ends at 15 % of its peak. Arguments as of `CosineDecay`. For
    a Python step NumPy computes, as there.
    """

    def __init__(self, peak, end, total_steps, warmup_steps=0, start_step=0):
        super().__init__()
        self._peak, self._end = peak, end
        self._total, self._warmup, self._start = total_steps, warmup_steps, start_step

    def __call__(self, step):
        """The learning rate at `t = step + start_step`."""
        xp = np if isinstance(step, int) else keras.ops
        if xp is keras.ops:
            step = keras.ops.cast(step, "int32")
        t = xp.multiply(xp.minimum(step + self._start, self._total), 1.0)
        angle = (t - self._warmup) * (math.pi / max(1, self._total - self._warmup))
        decaying = self._end + (self._peak - self._end) / 2 * (1.0 + xp.cos(angle))
        rising = t * (self._peak / max(1, self._warmup))
        return xp.where(t <= self._warmup, rising, decaying)


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
