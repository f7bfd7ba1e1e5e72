"""The second cosine of a run with `optimizer.rewarm`, its warm-up of any length."""

import math
from typing import Any

import keras

from keras_idea.schedules.learning_rate import ARGUMENTS, whole_steps
from keras_idea.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_idea")
class AnnealedCosine(keras.optimizers.schedules.LearningRateSchedule):
    r"""Linear warm-up, then a cosine that is counted from the end of the warm-up.

    $$\eta(t) = \begin{cases}
        \eta_p \, t / T_0 & t \le T_0 \\
        \eta_e + \frac{\eta_p - \eta_e}{2}
        \left(1 + \cos\left(\pi \frac{t - T_0}{T - T_0}\right)\right) & t > T_0
    \end{cases}$$

    at `t = step + start_step`, with the arguments of `CosineDecay`. The paper's cosine
    divides by `T`: after a warm-up of a quarter of all steps, it ends at 15% of its
    peak. Keras's own schedule equals this one, but only for single steps; the curve of
    a run needs all steps at once.
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
        self.peak_learning_rate = peak_learning_rate
        self.end_learning_rate = end_learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.start_step = start_step

    def __call__(self, step: int | Tensor) -> Tensor:
        """The learning rate at `t = step + start_step`; of an int by NumPy."""
        xp, step = whole_steps(step)
        peak, end = self.peak_learning_rate, self.end_learning_rate
        warmup = self.warmup_steps
        t = xp.multiply(xp.minimum(step + self.start_step, self.total_steps), 1.0)
        angle = (t - warmup) * (math.pi / max(1, self.total_steps - warmup))
        decaying = end + (peak - end) / 2 * (1.0 + xp.cos(angle))
        return xp.where(t < warmup, t * (peak / max(1, warmup)), decaying)

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments."""
        return {name: getattr(self, name) for name in ARGUMENTS}
