"""Which object makes a model's train step. Seen with Keras 3.15.1."""

import functools
from typing import Any

import keras


def owner_of_train_function(model: keras.Model) -> Any:
    """The object whose method is in place of a model's train function, or None."""
    return getattr(getattr(model, "train_function", None), "__self__", None)


def has_own_train_step(model: keras.Model) -> bool:
    """Whether a model's train step is neither Keras's nor KerasHub's.

    Theirs apply the optimizer once for each batch.
    """
    step = vars(model).get("train_step", type(model).train_step)
    module = getattr(_original(step), "__module__", "")
    return module.partition(".")[0] not in ("keras", "keras_hub")


def _original(step: Any) -> Any:
    while isinstance(step, functools.partial):
        step = step.args[0] if step.args else step.func
    return step
