"""Learning-rate schedules one after another."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.typing import Tensor
from keras_idea.validation import check_int


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
