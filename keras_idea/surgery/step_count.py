"""From the batches of an epoch to optimizer steps and the learning rate."""

from collections.abc import Callable

import keras

from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    as_float,
    as_int,
    rate_source,
)


class StepCount:
    """Knows the optimizer step at every batch without reading the optimizer.

    Reading `optimizer.iterations` waits for the device, so it is read once, when an
    epoch begins. float16 skips steps, so inside an epoch the count may run ahead.

    Args:
        optimizer: the Keras optimizer of the fitted model, its variables in sync.

    Attributes:
        per_step: int, batches of an optimizer step.

    Example:
    >>> count = StepCount(model.optimizer)  # at the beginning of an epoch
    >>> count.after(batches=10)  # what `optimizer.iterations` will be then
    10
    """

    def __init__(self, optimizer: keras.Optimizer) -> None:
        optimizer = innermost(optimizer)
        self._updates = as_int(apply_count(optimizer))
        self.per_step = optimizer.gradient_accumulation_steps or 1
        self._learning_rate = _learning_rate_function(optimizer)

    def after(self, batches: int) -> int:
        """int, the optimizer steps taken after so many batches of the epoch."""
        return (self._updates + batches) // self.per_step

    def batches(self, optimizer: keras.Optimizer) -> int:
        """int, the batches of the epoch so far; reads the optimizer again."""
        return as_int(apply_count(innermost(optimizer))) - self._updates

    def learning_rate(self, batches: int) -> float | None:
        """The rate that the last of so many batches used; None: there is no one rate.

        Args:
            batches: int, batches of the epoch so far.

        Returns:
            float or None.
        """
        if self._learning_rate is None or batches < 1:
            return None
        return self._learning_rate(self._updates + batches - 1)

    def logs(self, batches: int) -> dict[str, float]:
        """The log entry `learning_rate` after so many batches, if there is one."""
        rate = self.learning_rate(batches)
        return {} if rate is None else {"learning_rate": rate}


def _learning_rate_function(
    optimizer: keras.Optimizer,
) -> Callable[[int], float] | None:
    """A function of the optimizer's update count, or None if there is no one rate."""
    if hasattr(optimizer, "optimizers"):
        return None
    rate = rate_source(optimizer)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return lambda update: float(rate(update))
    constant = as_float(rate() if callable(rate) else rate)
    return lambda update: constant
