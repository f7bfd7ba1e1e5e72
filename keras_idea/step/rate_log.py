"""The learning rate of each batch, read without waiting for the device."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.keras_private.callbacks import acts_at
from keras_idea.keras_private.models import state_is_out
from keras_idea.keras_private.optimizer_variables import (
    apply_count,
    as_float,
    as_int,
    change_mark,
    innermost,
    rate_source,
)
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


_BEGIN, _END, _EPOCH_END = "batch_begin", "batch_end", "epoch_end"


class RateLog:
    """Notes the learning rate of the batches of an epoch, for the logs.

    A `LearningRateSchedule` is a function of the optimizer's count. A rate that is a
    number may be set between two batches: it is read before a batch if it was. What is
    not known of a batch is None: the rate where a later callback sets it, or the user's
    own train step may, and that of a plain function.

    `own` is the one of the callbacks that notes the rate; no callbacks: a loop calls
    the hooks.
    """

    def __init__(
        self,
        model: keras.Model,
        count: StepCount,
        callbacks: Sequence[keras.callbacks.Callback],
        own: keras.callbacks.Callback,
    ) -> None:
        self._optimizer, self._count = innermost(model.optimizer), count
        self._model = model
        several = hasattr(self._optimizer, "optimizers")
        self._source: Any = None if several else rate_source(self._optimizer)
        places = [i for i, callback in enumerate(callbacks) if callback is own]
        place = places[0] if places else 0
        earlier, later = callbacks[:place], callbacks[place + 1 :]
        self._known = count.known and not any(acts_at(c, _BEGIN) for c in later)
        self._changes = not callbacks or any(
            acts_at(callback, hook) for callback in callbacks for hook in (_BEGIN, _END)
        )
        # Whether a rate read when the epoch ends may be that of the next batch.
        self._moves = any(acts_at(c, _END) for c in callbacks) or any(
            acts_at(c, _EPOCH_END) for c in earlier
        )
        self._mark: object = None
        self._noted: list[tuple[int, float]] = []  # (batch, the rate from it on)

    @property
    def scheduled(self) -> bool:
        """bool, whether the rate is a schedule."""
        return isinstance(self._source, keras.optimizers.schedules.LearningRateSchedule)

    def note(self, batch: int) -> None:
        """To be called before a batch, by the thread that trains."""
        if not isinstance(self._source, keras.Variable):
            return
        if self._noted and (not self._changes or state_is_out(self._model)):
            return
        mark = change_mark(self._source)
        if mark is None or (self._noted and mark == self._mark):
            return
        self._mark = mark
        rate = as_float(self._source)
        if not self._noted or rate != self._noted[-1][1]:
            self._noted.append((batch, rate))

    def of(self, batches: int) -> float | None:
        """The rate that the last of so many batches used; None: it is not known."""
        if not self._known or batches < 1:
            return None
        if self.scheduled:
            return as_float(self._source(self._count.updates(batches) - 1))
        noted = [rate for batch, rate in self._noted if batch < batches]
        return noted[-1] if noted else None

    def at_end(self, batches: int) -> float | None:
        """The rate of the last batch when an epoch of so many ends; None: not known.

        Where none is known of the batch, the optimizer's is read, unless another
        callback may have set it since.
        """
        if self._source is None:
            return None
        if self.scheduled:
            updates = as_int(apply_count(self._optimizer))
            return as_float(self._source(max(updates - 1, 0)))
        rate = self.of(batches)
        if rate is not None:
            return rate
        if not isinstance(self._source, keras.Variable):
            return as_float(self._source())
        rate = as_float(self._source)
        same = bool(self._noted) and self._noted[-1][1] == rate
        return rate if same or not self._moves else None
