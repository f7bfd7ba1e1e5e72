"""Learning rates by step: `CosineDecay` (the paper's) and `WarmupStableDecay`."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.typing import Tensor
from keras_idea.validation import check_int, check_number

ARGUMENTS = (
    "peak_learning_rate",
    "end_learning_rate",
    "total_steps",
    "warmup_steps",
    "start_step",
)


def _set_rates_and_steps(
    schedule: Any,
    peak_learning_rate: float,
    end_learning_rate: float,
    total_steps: int,
    warmup_steps: int,
    start_step: int,
) -> None:
    """Checks the arguments that both schedules have, and keeps them."""
    peak = check_number("peak_learning_rate", peak_learning_rate)
    end = check_number("end_learning_rate", end_learning_rate, maximum=peak)
    total_steps = check_int("total_steps", total_steps, minimum=1)
    schedule.peak_learning_rate, schedule.end_learning_rate = peak, end
    schedule.total_steps = total_steps
    schedule.warmup_steps = check_int("warmup_steps", warmup_steps, 0, total_steps)
    schedule.start_step = check_int("start_step", start_step, minimum=0)


def whole_steps(step: int | Tensor) -> tuple[Any, int | Tensor]:
    """The module to compute with, and `step` as an integer of it.

    A Python step (a callback's, for the logs) is computed with NumPy: eager tensor
    operations would cost as much as a small model's train step.
    """
    if isinstance(step, int):
        return np, step
    return ops, ops.cast(step, "int32")


def _warmup(
    xp: Any, step: Tensor, peak: float, warmup_steps: int, after: Tensor
) -> Tensor:
    """`step / warmup_steps * peak` up to `warmup_steps`, then `after`."""
    if warmup_steps == 0:
        return after
    return xp.where(step <= warmup_steps, peak * step / warmup_steps, after)


@keras.saving.register_keras_serializable(package="keras_idea")
class CosineDecay(keras.optimizers.schedules.LearningRateSchedule):
    r"""Linear warm-up, then one cosine over the whole run, as the paper prints it.

    $$\eta(t) = \begin{cases}
        \eta_p \, t / T_0 & 0 < t \le T_0 \\
        \frac{\eta_p - \eta_e}{2} \cos\left(\pi \frac{t - T_0}{T}\right)
        + \frac{\eta_p + \eta_e}{2} & t > T_0
    \end{cases}$$

    at `t = step + start_step`. Use it to follow the paper. The denominator of the
    cosine is `T`, not `T - T_0`, as printed. With a warm-up, the rate at `T` is
    therefore above `eta_e`. The difference is 0.02% of the peak if the warm-up is 1% of
    `T`, and 2.4% if it is 10%. Beyond `T` the rate stays at its value at `T`. Without a
    warm-up it is `eta_p` at 0.

    `keras.optimizers.schedules.CosineDecay` has the same name and other arguments. It
    counts its cosine from the end of the warm-up, and its end is a fraction `alpha` of
    the peak.

    With `gradient_accumulation_steps=N`, Keras requests the rate per micro-batch. Then
    give all steps here in micro-batches.

    Args:
        peak_learning_rate: float >= 0. The rate after the warm-up, `eta_p`.
        end_learning_rate: float in [0, peak_learning_rate]. The end rate, `eta_e`.
        total_steps: int >= 1. The steps of the whole run, `T`.
        warmup_steps: int in [0, total_steps]. The steps of the warm-up, `T_0`. Defaults
            to 0.
        start_step: int >= 0. The step of the curve at which the run resumes. Defaults
            to 0.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> schedule = CosineDecay(0.01, 5e-5, total_steps=1000, warmup_steps=10)
    >>> optimizer = keras.optimizers.AdamW(schedule)

    Source: IDEA Prune (arXiv 2503.05920), the learning-rate equation.
    """

    def __init__(
        self,
        peak_learning_rate: float,
        end_learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        start_step: int = 0,
    ) -> None:
        super().__init__()
        rates = peak_learning_rate, end_learning_rate
        _set_rates_and_steps(self, *rates, total_steps, warmup_steps, start_step)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate at `t = step + start_step`; see `call`."""
        return self.call(step)

    def call(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate at `t = step + start_step`.

        Args:
            step: int or integer scalar tensor. The optimizer step.

        Returns:
            float32 scalar tensor; for an int a NumPy float.
        """
        xp, step = whole_steps(step)
        # Whole steps are added and capped as integers: float32 holds them
        # exactly only up to 2**24.
        t = xp.minimum(step + self.start_step, self.total_steps)
        t = xp.multiply(t, 1.0)
        amplitude = (self.peak_learning_rate - self.end_learning_rate) / 2
        centre = (self.peak_learning_rate + self.end_learning_rate) / 2
        angle = (t - self.warmup_steps) * (math.pi / self.total_steps)
        cosine = amplitude * xp.cos(angle) + centre
        return _warmup(xp, t, self.peak_learning_rate, self.warmup_steps, cosine)

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments."""
        return {name: getattr(self, name) for name in ARGUMENTS}


@keras.saving.register_keras_serializable(package="keras_idea")
class WarmupStableDecay(keras.optimizers.schedules.LearningRateSchedule):
    r"""Linear warm-up, a constant rate, then a linear decay to the end rate.

    $$\eta(t) = \begin{cases}
        \eta_p \, t / T_0 & 0 < t \le T_0 \\
        \eta_p & T_0 < t \le T - T_d \\
        \eta_p + (\eta_e - \eta_p) \frac{t - (T - T_d)}{T_d} & t > T - T_d
    \end{cases}$$

    at `t = step + start_step`.

    Args:
        peak_learning_rate: float >= 0. The rate after the warm-up, `eta_p`.
        end_learning_rate: float in [0, peak_learning_rate]. The end rate, `eta_e`.
        total_steps: int >= 1. The steps of the whole run, `T`. Beyond it the rate stays
            at `eta_e`.
        warmup_steps: int in [0, total_steps]. The steps of the warm-up, `T_0`. Defaults
            to 0.
        decay_steps: int in [1, total_steps - warmup_steps] or None. The steps of the
            decay, `T_d`. Defaults to None: a fifth of `total_steps` (at least 1, at
            most what the warm-up leaves).
        start_step: int >= 0. The step of the curve at which the run resumes. Defaults
            to 0.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> schedule = WarmupStableDecay(0.01, 0.0, total_steps=100, decay_steps=20)
    >>> round(float(schedule(90)), 6)
    0.005

    Reference: Hu et al., 2024 (MiniCPM, arXiv 2404.06395).
    """

    def __init__(
        self,
        peak_learning_rate: float,
        end_learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        decay_steps: int | None = None,
        start_step: int = 0,
    ) -> None:
        super().__init__()
        rates = peak_learning_rate, end_learning_rate
        _set_rates_and_steps(self, *rates, total_steps, warmup_steps, start_step)
        longest = self.total_steps - self.warmup_steps
        if decay_steps is None:
            decay_steps = max(1, min(self.total_steps // 5, longest))
        self.decay_steps = check_int("decay_steps", decay_steps, 1, max(longest, 1))

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the rate at `t`: a float32 scalar tensor; for an int by NumPy."""
        xp, step = whole_steps(step)
        t = xp.minimum(step + self.start_step, self.total_steps)
        decayed = xp.maximum(t - (self.total_steps - self.decay_steps), 0)
        peak, end = self.peak_learning_rate, self.end_learning_rate
        rate = peak + (end - peak) * xp.divide(decayed, self.decay_steps)
        return _warmup(xp, xp.multiply(t, 1.0), peak, self.warmup_steps, rate)

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments."""
        return {name: getattr(self, name) for name in (*ARGUMENTS, "decay_steps")}


@keras.saving.register_keras_serializable(package="keras_idea")
class StagedSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Runs schedules one after another, each from its own step 0.

    Use it to warm up the learning rate again when pruning begins. Stage `i` covers its
    own number of steps and is called with the steps since its start. The last stage
    continues beyond its steps.

    Args:
        stages: sequence of `(schedule, steps)`. At least one pair of a
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

    def __init__(
        self,
        stages: Sequence[tuple[keras.optimizers.schedules.LearningRateSchedule, int]],
    ) -> None:
        super().__init__()
        self.stages: list = []
        for stage in stages:
            try:
                schedule, steps = stage
                steps = check_int("steps", steps, minimum=1)
            except (TypeError, ValueError):
                schedule = steps = None
            if not isinstance(
                schedule, keras.optimizers.schedules.LearningRateSchedule
            ):
                raise ArgumentError(
                    "Each stage must be a pair (LearningRateSchedule, steps >= 1). "
                    f"Received: {stage!r}."
                )
            self.stages.append((schedule, steps))
        if not self.stages:
            raise ArgumentError(
                "`stages` must hold at least one (schedule, steps) pair. "
                f"Received: stages={stages!r}."
            )

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the learning rate of the stage that contains `step`."""
        if isinstance(step, int):
            return self._at(step)
        step = ops.cast(step, "int32")
        start = 0
        (schedule, steps), *later = self.stages
        rate = ops.cast(schedule(step), "float32")
        for following, following_steps in later:
            start += steps
            # Clipped: a schedule must not be asked for a negative step, even
            # where its answer is not used.
            own = ops.cast(following(ops.maximum(step - start, 0)), "float32")
            rate = ops.where(step >= start, own, rate)
            steps = following_steps
        return rate

    def _at(self, step: int) -> Tensor:
        """Of a Python step, a callback's: no tensor is made but by a schedule."""
        for schedule, steps in self.stages[:-1]:
            if step < steps:
                return schedule(step)
            step -= steps
        return self.stages[-1][0](step)

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments, the schedules serialized."""
        serialize = keras.saving.serialize_keras_object
        return {"stages": [[serialize(s), steps] for s, steps in self.stages]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "StagedSchedule":
        """Returns the schedule that `get_config` described."""
        restore = keras.saving.deserialize_keras_object
        return cls([(restore(s), steps) for s, steps in config["stages"]])


@keras.saving.register_keras_serializable(package="keras_idea")
class Accumulated(keras.optimizers.schedules.LearningRateSchedule):
    """Gives the rate of an optimizer step when Keras requests it per micro-batch.

    With `gradient_accumulation_steps=N`, Keras requests the rate of every micro-batch,
    so a schedule would run N times too fast (3.15.1). This schedule returns
    `schedule(step // N)`.

    Args:
        schedule: keras.optimizers.schedules.LearningRateSchedule. Counts optimizer
            steps.
        micro_batches: int >= 1. Micro-batches per optimizer step, `N`.

    Example:
    >>> schedule = Accumulated(ki.CosineDecay(0.01, 0.0, total_steps=100), 4)
    >>> float(schedule(403)) == float(schedule.schedule(100))
    True
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        micro_batches: int,
    ) -> None:
        super().__init__()
        self.schedule = schedule
        self.micro_batches = check_int("micro_batches", micro_batches, minimum=1)

    def __call__(self, step: int | Tensor) -> Tensor:
        """Returns the rate of the optimizer step that holds micro-batch `step`."""
        if not isinstance(step, int):  # a callback's int is computed with NumPy
            step = ops.cast(step, "int32")
        return self.schedule(step // self.micro_batches)

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments, the schedule serialized."""
        schedule = keras.saving.serialize_keras_object(self.schedule)
        return {"schedule": schedule, "micro_batches": self.micro_batches}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Accumulated":
        """The schedule that `get_config` described."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(schedule, config["micro_batches"])
