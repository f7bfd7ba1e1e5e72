"""A learning-rate schedule under gradient accumulation."""

from typing import Any

import keras
from keras import ops

from keras_idea.typing import Tensor
from keras_idea.validation import check_int


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
