"""What Keras's own callbacks remember, next to which a checkpoint is written."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.callbacks import (
    begin_with,
    kind_of,
    memory,
    peers,
    remember,
)

# The one attribute that holds arrays.
_WEIGHTS = "best_weights"


def check_order(
    checkpoint: keras.callbacks.Callback, stateful: Iterable[object]
) -> None:
    """Rejects callbacks whose state would be saved too early, or restored twice.

    To be called in a hook of `checkpoint`, which saves the objects `stateful` too.
    """
    saved, behind = set(map(id, stateful)), False
    for peer in peers(checkpoint):
        name = type(peer).__name__
        if behind and (kind_of(peer) or id(peer) in saved):
            raise ArgumentError(
                f"`Checkpoint` saves the state of {name}, so it must come after it "
                f"in `callbacks`. Received: {name} after Checkpoint. Put `Checkpoint` "
                "last."
            )
        if isinstance(peer, keras.callbacks.BackupAndRestore):
            raise ArgumentError(
                "`Checkpoint` and BackupAndRestore would both restore the model. "
                "Received: both in `callbacks`. Leave BackupAndRestore out."
            )
        behind = behind or peer is checkpoint


def memories(
    checkpoint: keras.callbacks.Callback,
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """What the callbacks in the list of this one remember, as JSON and as arrays.

    To be called in one of its hooks. One dict for each callback.
    """
    facts, arrays = [], {}
    for i, (kind, callback) in enumerate(_companions(checkpoint)):
        state = memory(callback)
        weights = state.pop(_WEIGHTS, None)
        numbers = {name: _as_json(value) for name, value in state.items()}
        facts.append({"kind": kind, **numbers})
        for j, array in enumerate(weights or ()):
            arrays[f"{i:03d}/{j:05d}"] = np.asarray(array)
    return facts, arrays


def put_back(
    checkpoint: keras.callbacks.Callback,
    facts: list[dict[str, Any]],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Gives the callbacks what `memories` returned, after they began anew.

    To be called in `on_train_begin` of the last callback. If EarlyStopping had ended
    the run, and its patience is not greater now, the `fit` under way trains no epoch.
    """
    found = _companions(checkpoint)
    was, here = [fact["kind"] for fact in facts], [kind for kind, _ in found]
    if was != here:
        warnings.warn(
            "The callbacks of this `fit` are not those of the checkpoint, so they "
            f"begin again: patience counts from 0. Received: {here}, and the "
            f"checkpoint holds the state of {was}. Pass the same callbacks to resume "
            "exactly.",
            stacklevel=2,
        )
        return
    for i, (fact, (_, callback)) in enumerate(zip(facts, found, strict=True)):
        prefix = f"{i:03d}/"
        weights = [arrays[n] for n in sorted(arrays) if n.startswith(prefix)]
        remember(callback, {**fact, _WEIGHTS: weights or None})
        if isinstance(callback, keras.callbacks.EarlyStopping):
            _stay_stopped(callback)


def _stay_stopped(callback: keras.callbacks.EarlyStopping) -> None:
    if callback.stopped_epoch and callback.wait >= callback.patience:
        begin_with(callback.model, callback.params["epochs"])
    else:
        callback.stopped_epoch = 0


def _companions(
    checkpoint: keras.callbacks.Callback,
) -> list[tuple[str, keras.callbacks.Callback]]:
    companions = []
    for callback in peers(checkpoint):
        if kind := kind_of(callback):
            # The best of one metric is nothing to another.
            monitor = getattr(callback, "monitor", None)
            label = kind if monitor is None else f"{kind} of {monitor}"
            companions.append((label, callback))
    return companions


def _as_json(value: Any) -> Any:
    """None, a bool or an int as it is; any other number as a float."""
    if value is None or isinstance(value, (bool, int)):
        return value
    return float(keras.ops.convert_to_numpy(value))
