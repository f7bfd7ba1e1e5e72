"""A variable's shape and its first value, which the public interface never changes."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state


def give_value(variable: keras.Variable, value: Any) -> None:
    """Gives a variable a value of another shape, as if it were made with it.

    `assign` refuses another shape. The object stays, its layout over the devices too.
    Seen with Keras 3.15.1.

    Args:
        variable: a Keras variable.
        value: tensor of the same rank and dtype.
    """
    variable._initialize(value)
    variable._shape = variable._validate_shape(value.shape)


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """A scope in which Keras makes models whose variables have no values.

    `StatelessScope(initialize_variables=False)` alone would give all of them values
    at its end: Keras keeps a list of those that wait. Seen with Keras 3.15.1.
    """
    waiting = "uninitialized_variables"
    before = list(global_state.get_global_attribute(waiting, []))
    try:
        with keras.StatelessScope(initialize_variables=False), on_no_device():
            yield
    finally:
        global_state.set_global_attribute(waiting, before)


def on_no_device() -> contextlib.AbstractContextManager:
    """A scope in which what holds variables without values takes no memory either.

    On torch a layer has its parameters a second time, and makes values for them when it
    is built, a model around it too.
    """
    if keras.backend.backend() == "torch":
        return keras.device("meta")
    return contextlib.nullcontext()
