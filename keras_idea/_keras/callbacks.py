"""The callbacks of the `fit` under way, and its held-out data."""

import inspect
import types
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.generator_data_adapter import (
    GeneratorDataAdapter,
)
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter


def peers(callback: keras.callbacks.Callback) -> list[keras.callbacks.Callback]:
    """The callbacks of the list that has called a hook of this one, itself among them.

    `CallbackList` gives each callback the model and the parameters, not the list: it
    is found among the callers, or in the `fit` that takes a step; none where there is
    no list. Seen with Keras 3.15.1.
    """
    for frame in _callers():
        name = "callbacks" if frame.f_code.co_name == "fit" else "self"
        held = frame.f_locals.get(name)
        if isinstance(held, keras.callbacks.CallbackList):
            if any(own is callback for own in held.callbacks):
                return held.callbacks
    return []


def _callers() -> Iterator[types.FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_stopping(callback: keras.callbacks.Callback) -> bool:
    """Whether `fit` ends after this batch; `callback.model` would sync it on jax."""
    return bool(callback._model.stop_training)


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
    "cooldown_counter",
    "wait",
    "_batches_seen_since_last_saving",
    "_ema_weights_in_model",
    "_last_batch_seen",
)


def kind_of(callback: keras.callbacks.Callback) -> str | None:
    """The name of the class in Keras, if it remembers something; else None."""
    kinds = (kind.__name__ for kind in _KINDS if isinstance(callback, kind))
    return next(kinds, None)


def memory(callback: keras.callbacks.Callback) -> dict[str, np.ndarray]:
    """What one of Keras's callbacks remembers, as arrays by name."""
    found = {name: getattr(callback, name, None) for name in _MEMORY}
    best = getattr(callback, "best_weights", None) or []
    found |= {f"best_weights/{i:05d}": weights for i, weights in enumerate(best)}
    return {
        name: keras.ops.convert_to_numpy(value)
        for name, value in found.items()
        if value is not None
    }


def remember(callback: keras.callbacks.Callback, arrays: dict[str, np.ndarray]) -> None:
    """Puts back what `memory` returned."""
    best = [array for name, array in arrays.items() if name not in _MEMORY]
    if best:
        callback.best_weights = best
    for name in set(_MEMORY).intersection(arrays):
        setattr(callback, name, arrays[name].item())


def forget_best(callback: keras.callbacks.Callback) -> None:
    """Makes each EarlyStopping in the list of a callback forget the best so far.

    To be called in a hook of that callback, if earlier weights no longer fit.
    """
    for peer in peers(callback):
        if (
            isinstance(peer, keras.callbacks.EarlyStopping)
            and peer.restore_best_weights
        ):
            peer.best = peer.best_weights = None
            peer.wait = 0


def evaluate_again(model: keras.Model) -> dict[str, Any]:
    """Evaluates a model on the held-out data of the `fit` under way, from the first.

    `fit` evaluates so itself; with `validation_steps` it resumes where it has stopped,
    as it will afterwards. KerasHub's tasks set these, to all batches.
    """
    iterator = model._eval_epoch_iterator
    before = iterator._current_iterator, iterator._steps_seen
    iterator._current_iterator, iterator._steps_seen = None, 0
    try:
        found = model.evaluate(
            return_dict=True, verbose=0, _use_cached_eval_dataset=True
        )
    finally:
        iterator._current_iterator, iterator._steps_seen = before
    return dict(found)


def why_not_again(model: keras.Model) -> str | None:
    """Why held-out data cannot be used again from the first; None: they can."""
    iterator = getattr(model, "_eval_epoch_iterator", None)
    if iterator is None:
        return "there is none"
    if isinstance(iterator.data_adapter, GeneratorDataAdapter):
        return "it is a generator, which gives other batches each time"
    if isinstance(iterator.data_adapter, PyDatasetAdapter) and iterator.steps_per_epoch:
        return "it is a PyDataset, and `validation_steps` takes the next batches"
    return None


# The last one's frames are those of functions that a scope is around.
_INSIDE = ("keras_idea", "keras", "keras_hub", "contextlib")


def warn_user(message: str) -> None:
    """Warns, at the line outside of Keras and this package that led here."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_inside(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE
