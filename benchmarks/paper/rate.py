"""The learning rate of a stage, as data, and as the schedule that Keras asks."""

import dataclasses

import keras
from keras import ops

from keras_idea.schedules import CosineDecay, WarmupStableDecay

#: shape: the schedule's class; both take peak, end, total and warm-up steps.
SHAPES = {"cosine": CosineDecay, "stable": WarmupStableDecay}


@dataclasses.dataclass(frozen=True)
class Rate:
    """A stretch of one of the paper's curves: eta(t; T) from t = `first` on.

    As in Algorithm 1 steps count from 1: the stage's first update uses
    eta(first), and `first=1` begins a curve.

    Attributes:
        shape: "cosine" or "stable".
        peak: float, the curve's highest rate.
        end: float, its last.
        total: int, T.
        warmup: int, T_0.
        first: int >= 1, the t of the stage's first step.
    """

    shape: str
    peak: float
    end: float
    total: int
    warmup: int
    first: int = 1

    def schedule(self, iterations=0):
        """What the optimizer of the stage is given.

        Args:
            iterations: int, updates that the optimizer has done when the stage
                begins: 0 for a new one.

        Returns:
            A `LearningRateSchedule`; its value at `iterations` is eta(first).
        """
        curve = SHAPES[self.shape](self.peak, self.end, self.total, self.warmup)
        return Shifted(curve, self.first - iterations)

    def values(self, steps):
        """The rates of so many steps of the stage.

        Args:
            steps: int.

        Returns:
            List of float.
        """
        schedule = self.schedule()
        return [float(schedule(step)) for step in range(steps)]


@keras.saving.register_keras_serializable(package="keras_idea")
class Shifted(keras.optimizers.schedules.LearningRateSchedule):
    """Another schedule, some steps later: `schedule(step + shift)`.

    Args:
        schedule: `LearningRateSchedule`.
        shift: int.

    Example:
    >>> Shifted(CosineDecay(0.1, 0.0, 100), 1)(0)  # eta(1)
    """

    def __init__(self, schedule, shift):
        super().__init__()
        self.inner, self.shift = schedule, shift

    def __call__(self, step):
        """The inner schedule at `step + shift`."""
        whole = step if isinstance(step, int) else ops.cast(step, "int32")
        return self.inner(whole + self.shift)

    def get_config(self):
        """Dict of the constructor's arguments, the schedule serialized."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.inner),
            "shift": self.shift,
        }

    @classmethod
    def from_config(cls, config):
        """The schedule that `get_config` described."""
        inner = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(inner, config["shift"])
