"""The mean loss of the training steps at each width, for the logs of an epoch."""

import collections
from typing import Any

import keras

from keras_idea.keras_private.fit_figures import LossSums
from keras_idea.keras_private.optimizer_variables import as_float
from keras_idea.typing import Tensor

#: Steps that may be under way: older values are read without waiting for the device.
_LAG = 64


class WidthLosses:
    """Takes the sums that Keras keeps of an epoch's losses apart, by width."""

    def __init__(self, model: keras.Model) -> None:
        self._sums = LossSums(model)
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Forgets the losses of the steps before; the model is in sync."""
        sums = self._sums()
        self._before = (0.0, 0.0) if sums is None else tuple(map(as_float, sums))
        self._waiting: collections.deque[tuple[str, tuple[Tensor, Tensor]]]
        self._waiting = collections.deque()
        self._found: dict[str, list[float]] = {}

    def note(self, name: str, returned: Any) -> None:
        """Notes that a step at a width has been taken, and what it has returned."""
        sums = self._sums(returned)
        if sums is not None:
            self._waiting.append((name, sums))
        while len(self._waiting) > _LAG:
            self._take()

    def logs(self) -> dict[str, float]:
        """`NAME_loss` of each width that had steps; none of a step with several."""
        while self._waiting:
            self._take()
        return {
            f"{name}_loss": total / weight
            for name, (total, weight) in self._found.items()
            if name and weight
        }

    def _take(self) -> None:
        name, sums = self._waiting.popleft()
        now = as_float(sums[0]), as_float(sums[1])
        found = self._found.setdefault(name, [0.0, 0.0])
        for place, (after, before) in enumerate(zip(now, self._before, strict=True)):
            found[place] += after - before
        self._before = now
