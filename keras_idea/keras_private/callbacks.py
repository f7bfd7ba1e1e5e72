"""The callbacks of the `fit` under way, and which of their hooks do something."""

import inspect
import types
from collections.abc import Iterator

import keras


def peers(callback: keras.callbacks.Callback) -> list[keras.callbacks.Callback]:
    """The callbacks of the list that has called a hook of this one, itself among them.

    `CallbackList` gives each callback the model and the parameters, not the list: it
    is found among the callers; none where there is no list. Seen with Keras 3.15.1.
    """
    for frame in _callers():
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.callbacks.CallbackList):
            if any(own is callback for own in caller.callbacks):
                return caller.callbacks
    return []


def initial_epoch() -> int:
    """The `initial_epoch` of the `fit` that has called a callback; 0 without one.

    `on_train_begin` is not told, and an error raised later, in `on_epoch_begin`, ends a
    `fit` that has begun: on jax the weights are then replaced by averages that are
    still zero, if the optimizer has `use_ema`.
    """
    for frame in _callers():
        fits = frame.f_code.co_name == "fit"
        if fits and isinstance(frame.f_locals.get("self"), keras.Model):
            return frame.f_locals.get("initial_epoch") or 0
    return 0


def _callers() -> Iterator[types.FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def acts_at(callback: keras.callbacks.Callback, hook: str) -> bool:
    """Whether somebody's own code runs in one of a callback's hooks.

    They are "batch_begin" and "batch_end", of training, and "epoch_end". Of Keras's
    callbacks and this package's none changes the learning rate at a batch, but for a
    `LambdaCallback`, which holds functions of the user's. That Keras's
    `ReduceLROnPlateau` does at "epoch_end" is not told.
    """
    names = (f"on_{hook}", f"on_train_{hook}")
    theirs = type(callback).__module__.partition(".")[0]
    if theirs == "keras_idea":
        return False
    if theirs == "keras":
        return any(name in vars(callback) for name in names)
    base = keras.callbacks.Callback
    return any(
        name in vars(callback)
        or getattr(type(callback), name, None) is not getattr(base, name, None)
        for name in names
    )
