"""Changing what a built layer holds, which Keras locks. Seen with Keras 3.15.1."""

from collections.abc import Callable
from typing import Any

import keras


def unlocked(
    layer: keras.layers.Layer, change: Callable[..., Any], *arguments: Any
) -> None:
    """Calls `change(layer, *arguments)` where Keras would refuse new state."""
    locked = layer._tracker.locked
    layer._tracker.unlock()
    try:
        change(layer, *arguments)
    finally:
        if locked:
            layer._tracker.lock()


def untrack(owner: keras.layers.Layer, sublayer: keras.layers.Layer) -> None:
    """Takes a sublayer out of what a layer holds; `delattr` leaves it there."""
    owner._tracker.untrack(sublayer)


def renew_weight(
    layer: keras.layers.Layer, name: str, make: Callable[[], keras.Variable]
) -> None:
    """Gives a layer another variable in the place of one that does not train.

    `name` is the attribute; `make` adds the new one, by `layer.add_weight`.
    """
    held, old = layer._non_trainable_variables, getattr(layer, name)
    place = next(i for i, variable in enumerate(held) if variable is old)
    unlocked(layer, lambda layer: setattr(layer, name, make()))
    held[place] = held.pop()
