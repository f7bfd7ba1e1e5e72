"""What `log_dir=` of the pruning callback stands for: a monitor right behind it."""

import functools
import os
from collections.abc import Callable
from typing import Any

import keras

from keras_idea.callbacks.monitor import Monitor

LogDir = str | os.PathLike[str] | Monitor | None

_HOOKS = (
    "set_params",
    "set_model",
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_epoch_end",
    "on_train_end",
)


def monitor_for(log_dir: LogDir) -> Monitor | None:
    """The monitor that `log_dir` asks for."""
    if log_dir is None or isinstance(log_dir, Monitor):
        return log_dir
    return Monitor(log_dir)


def call_after(callback: keras.callbacks.Callback, monitor: Monitor) -> None:
    """Has each hook of a callback call the same one of a monitor when it is done.

    So the monitor need not stand in the list of callbacks, nor the callback know of it;
    the callback's class stays as it is.
    """
    hooks = {
        name: _both(getattr(callback, name), getattr(monitor, name)) for name in _HOOKS
    }
    end = callback.on_train_batch_end

    @functools.wraps(end)
    def on_train_batch_end(batch: int, logs: dict | None = None) -> None:
        end(batch, logs)
        monitor.on_train_batch_end(batch, logs)

    vars(callback).update(hooks, on_train_batch_end=on_train_batch_end)


def _both(first: Callable, second: Callable) -> Callable:
    @functools.wraps(first)
    def hook(*args: Any, **kwargs: Any) -> None:
        first(*args, **kwargs)
        second(*args, **kwargs)

    return hook
