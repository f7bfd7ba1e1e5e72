"""From the batches of an epoch to optimizer steps."""

import keras

from keras_idea.keras_private.optimizer_parts import innermost
from keras_idea.keras_private.optimizer_variables import apply_count, as_int
from keras_idea.keras_private.train_step import has_own_train_step


class StepCount:
    """Knows the optimizer step at every batch without reading the optimizer.

    Reading `optimizer.iterations` waits for the device, so it is read once, when an
    epoch begins. float16 skips steps, so inside an epoch the count may run ahead. The
    train step of a user's own may call the optimizer twice, or not at all: `after` is
    then a guess, and `known` False.

    Example:
    >>> count = StepCount(model)  # at the beginning of an epoch
    >>> count.after(batches=10)  # what `optimizer.iterations` will be then
    10
    """

    def __init__(self, model: keras.Model) -> None:
        optimizer = innermost(model.optimizer)
        self._updates = as_int(apply_count(optimizer))
        self.per_step = optimizer.gradient_accumulation_steps or 1
        self.known = not has_own_train_step(model)

    def updates(self, batches: int) -> int:
        """int, the calls of the optimizer after so many batches of the epoch."""
        return self._updates + batches

    def after(self, batches: int) -> int:
        """int, the optimizer steps taken after so many batches of the epoch."""
        return self.updates(batches) // self.per_step

    def batches(self, optimizer: keras.Optimizer) -> int:
        """int, the batches of the epoch so far; reads the optimizer again."""
        return as_int(apply_count(innermost(optimizer))) - self._updates
