"""The optimizer's step at every batch, counted without waiting for the device."""

import keras

from keras_idea._keras.optimizer_variables import (
    apply_count,
    as_int,
    innermost,
)


class StepCount:
    """Knows the optimizer step at every batch without reading the optimizer.

    Reading `optimizer.iterations` waits for the device, so it is read once, when an
    epoch begins. float16 skips steps, so inside an epoch the count may run ahead. A
    custom train step may call the optimizer twice, or not at all: `after` is a guess.

    Example:
    >>> count = StepCount(model)  # at the beginning of an epoch
    >>> count.after(batches=10)  # what `optimizer.iterations` will be then
    10
    """

    def __init__(self, model: keras.Model) -> None:
        optimizer = innermost(model.optimizer)
        self._updates = as_int(apply_count(optimizer))
        self.per_step = optimizer.gradient_accumulation_steps or 1

    def after(self, batches: int) -> int:
        """Returns the optimizer steps taken after so many batches of the epoch."""
        return (self._updates + batches) // self.per_step
