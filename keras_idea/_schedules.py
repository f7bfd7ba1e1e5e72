"""Learning rate schedules, by step."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from keras_idea._typing import Tensor
from keras_idea._validation import check_int, check_number
from keras_idea.errors import ArgumentError

_serialize = keras.saving.serialize_keras_object


def _restored(given: Any) -> Any:
    """Returns a schedule; makes one that a config holds."""
    restore = keras.saving.deserialize_keras_object
    return restore(given) if isinstance(given, dict) else given


@dataclasses.dataclass(eq=False)
class _OfOneRun(LearningRateSchedule):
    """A linear warm-up, then `after` it; in steps of one run."""

    peak_learning_rate: float
    end_learning_rate: float
    total_steps: int
    warmup_steps: int = 0
    start_step = 0  # the last field of each class

    def __post_init__(self) -> None:
        peak = check_number("peak_learning_rate", self.peak_learning_rate)
        end = check_number("end_learning_rate", self.end_learning_rate, maximum=peak)
        self.peak_learning_rate, self.end_learning_rate = peak, end
        total = self.total_steps = check_int("total_steps", self.total_steps, minimum=1)
        self.warmup_steps = check_int("warmup_steps", self.warmup_steps, 0, total)
        self.start_step = check_int("start_step", self.start_step, minimum=0)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate at `t = step + start_step`; NumPy's for an int."""
        xp: Any = np if isinstance(step, int) else ops
        # In integers: float32 holds steps exactly only up to 2**24.
        t = step if xp is np else ops.cast(step, "int32")
        t = xp.minimum(t + self.start_step, self.total_steps)
        rate = self.after(xp, t)
        if self.warmup_steps == 0:
            return rate
        rising = self.peak_learning_rate * xp.multiply(t, 1.0) / self.warmup_steps
        return xp.where(t <= self.warmup_steps, rising, rate)

    def after(self, xp: Any, t: Tensor) -> Tensor:
        """Returns the rate after the warm-up; `xp` is NumPy or `keras.ops`."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments."""
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable(package="keras_idea")
@dataclasses.dataclass(eq=False)
class CosineDecay(_OfOneRun):
    r"""Linear warm-up, then one cosine over the whole run, as the paper prints it.

    $$\eta(t) = \begin{cases}
        \eta_p \, t / T_0 & 0 < t \le T_0 \\
        \frac{\eta_p - \eta_e}{2} \cos\left(\pi \frac{t - T_0}{T}\right)
        + \frac{\eta_p + \eta_e}{2} & t > T_0
    \end{cases}$$

    The cosine is divided by `T`, not by `T - T_0`, so with a warm-up of 10% the rate at
    `T` is above `eta_e`, by 2.4% of the peak. Beyond `T` it is constant. With
    `gradient_accumulation_steps`, give all steps in micro-batches, as Keras counts.

    Args:
        peak_learning_rate: float >= 0. The rate after the warm-up, `eta_p`.
        end_learning_rate: float in [0, peak_learning_rate]. The end rate, `eta_e`.
        total_steps: int >= 1. The steps of the whole run, `T`.
        warmup_steps: int in [0, total_steps]. The warm-up's steps, `T_0`. Defaults to
            0.
        start_step: int >= 0. The step of the curve at which the run resumes. Defaults
            to 0.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> schedule = CosineDecay(0.01, 5e-5, total_steps=1000, warmup_steps=10)
    >>> optimizer = keras.optimizers.AdamW(schedule)

    Source: IDEA Prune (arXiv 2503.05920), the learning-rate equation.
    """

    start_step: int = 0

    def after(self, xp: Any, t: Tensor) -> Tensor:
        """Returns the cosine."""
        amplitude = (self.peak_learning_rate - self.end_learning_rate) / 2
        center = (self.peak_learning_rate + self.end_learning_rate) / 2
        t = xp.multiply(t, 1.0)
        angle = (t - self.warmup_steps) * (math.pi / self.total_steps)
        return amplitude * xp.cos(angle) + center


@keras.saving.register_keras_serializable(package="keras_idea")
@dataclasses.dataclass(eq=False)
class WarmupStableDecay(_OfOneRun):
    r"""Linear warm-up, a constant rate, then a linear decay to the end rate.

    $$\eta(t) = \begin{cases}
        \eta_p \, t / T_0 & 0 < t \le T_0 \\
        \eta_p & T_0 < t \le T - T_d \\
        \eta_p + (\eta_e - \eta_p) \frac{t - (T - T_d)}{T_d} & t > T - T_d
    \end{cases}$$

    Args:
        decay_steps: int in [1, total_steps - warmup_steps] or None. The steps of the
            decay, `T_d`. Defaults to None: a fifth of `total_steps`. The other
            arguments are those of `CosineDecay`.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> schedule = WarmupStableDecay(0.01, 0.0, total_steps=100, decay_steps=20)
    >>> round(float(schedule(90)), 6)
    0.005

    Source: MiniCPM (arXiv 2404.06395).
    """

    decay_steps: Any = None
    start_step: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        longest = max(self.total_steps - self.warmup_steps, 1)
        if self.decay_steps is None:
            self.decay_steps = max(1, min(self.total_steps // 5, longest))
        self.decay_steps = check_int("decay_steps", self.decay_steps, 1, longest)

    def after(self, xp: Any, t: Tensor) -> Tensor:
        """Returns the constant rate, then the decay."""
        decayed = xp.maximum(t - (self.total_steps - self.decay_steps), 0)
        peak, end = self.peak_learning_rate, self.end_learning_rate
        return peak + (end - peak) * xp.divide(decayed, self.decay_steps)


@keras.saving.register_keras_serializable(package="keras_idea")
class StagedSchedule(LearningRateSchedule):
    """Runs schedules one after another, each from its own step 0.

    Use it to warm up the learning rate again when pruning begins. The last stage
    continues beyond its steps.

    Args:
        stages: list of `(schedule, steps)`. At least one pair of a
            `LearningRateSchedule` and an int >= 1.

    Raises:
        ValueError: If the list is empty, or if a stage has another form.

    Example:
    >>> one = ki.CosineDecay(0.01, 0.0, total_steps=100)
    >>> two = ki.CosineDecay(0.005, 0.0, total_steps=50)
    >>> schedule = StagedSchedule([(one, 100), (two, 50)])
    >>> round(float(schedule(100)), 6)  # the second stage starts
    0.005
    """

    def __init__(self, stages: Sequence[tuple[LearningRateSchedule, int]]) -> None:
        super().__init__()
        self.stages = [tuple(_restored(part) for part in stage) for stage in stages]
        for stage in self.stages or [()]:
            if len(stage) != 2 or not isinstance(stage[0], LearningRateSchedule):
                raise ArgumentError(
                    "`stages` must be a list of pairs (LearningRateSchedule, steps). "
                    f"Received: stages={stages!r}."
                )
            check_int("steps", stage[1], minimum=1)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate of the stage that contains `step`."""
        step, start, rate = ops.cast(step, "int32"), 0, None
        for schedule, steps in self.stages:
            # Not negative, even where the rate of this stage is not used.
            own = ops.cast(schedule(ops.maximum(step - start, 0)), "float32")
            rate = own if rate is None else ops.where(step >= start, own, rate)
            start += steps
        return rate

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments, the schedules serialized."""
        return {"stages": [[_serialize(s), steps] for s, steps in self.stages]}


@keras.saving.register_keras_serializable(package="keras_idea")
class Accumulated(LearningRateSchedule):
    """Returns `schedule(step // N)`, because Keras counts N micro-batches per step."""

    def __init__(self, schedule: LearningRateSchedule, micro_batches: int) -> None:
        super().__init__()
        self.schedule, self.micro_batches = _restored(schedule), micro_batches

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the rate of the optimizer step that holds micro-batch `step`."""
        step = step if isinstance(step, int) else ops.cast(step, "int32")
        return self.schedule(step // self.micro_batches)

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments, the schedule serialized."""
        schedule = _serialize(self.schedule)
        return {"schedule": schedule, "micro_batches": self.micro_batches}
