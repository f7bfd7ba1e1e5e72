"""What Keras's own callbacks remember from epoch to epoch."""

from typing import Any

import keras

# Those that remember something from epoch to epoch, and what. The rest of their
# attributes is how they were made. Seen with Keras 3.15.1.
_KINDS = (
    keras.callbacks.EarlyStopping,
    keras.callbacks.ReduceLROnPlateau,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.SwapEMAWeights,
)
_MEMORY = (
    "best",
    "best_epoch",
    "best_weights",
    "cooldown_counter",
    "stopped_epoch",
    "wait",
    "_batches_seen_since_last_saving",
    "_ema_weights_in_model",
    "_last_batch_seen",
)


def kind_of(callback: keras.callbacks.Callback) -> str | None:
    """The name of the class in Keras, if it remembers something; else None."""
    kinds = (kind.__name__ for kind in _KINDS if isinstance(callback, kind))
    return next(kinds, None)


def memory(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """What one of Keras's callbacks remembers: attributes by name."""
    return {
        name: getattr(callback, name) for name in _MEMORY if hasattr(callback, name)
    }


def remember(callback: keras.callbacks.Callback, state: dict[str, Any]) -> None:
    """Puts back what `memory` returned."""
    for name in _MEMORY:
        if name in state and hasattr(callback, name):
            setattr(callback, name, state[name])


def begin_with(model: keras.Model, epoch: int | None) -> None:
    """Sets the epoch with which the `fit` under way begins, in `on_train_begin`.

    It overrules `initial_epoch` in this and later calls of `fit`, until it is called
    with None.
    """
    model._initial_epoch = epoch
