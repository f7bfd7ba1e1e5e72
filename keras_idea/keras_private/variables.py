"""A variable's shape and its first value, which the public interface never changes."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state


def give_value(variable: keras.Variable, value: Any) -> None:
    """Gives a variable a value of another shape, as if it were made with it.

    `assign` refuses another shape. The object stays, its layout over the devices too.
    Seen with Keras 3.15.1.
    """
    variable._initialize(value)
    variable._shape = variable._validate_shape(value.shape)


@contextlib.contextmanager
def shaped(variable: keras.Variable, shape: tuple[int, ...]) -> Iterator[None]:
    """A scope in which a variable says that it has another shape; its value stays.

    For tracing functions of values. Seen with Keras 3.15.1.
    """
    before = variable._shape
    variable._shape = shape
    try:
        yield
    finally:
        variable._shape = before


@contextlib.contextmanager
def begun_as_zeros(variables: Iterable[keras.Variable]) -> Iterator[None]:
    """A scope in which variables without values would be given zeros.

    On torch the symbolic call of a layer makes the values that it does not have yet,
    again at each reading; random ones take long. Seen with Keras 3.15.1.
    """
    waiting = [variable for variable in variables if variable._value is None]
    before = [variable._initializer for variable in waiting]
    for variable in waiting:
        variable._initializer = keras.initializers.Zeros()
    try:
        yield
    finally:
        for variable, initializer in zip(waiting, before, strict=True):
            variable._initializer = initializer


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """A scope in which Keras makes models whose variables have no values.

    `StatelessScope(initialize_variables=False)` alone would give all of them values
    at its end: Keras keeps a list of those that wait. Seen with Keras 3.15.1.
    """
    waiting = "uninitialized_variables"
    before = list(global_state.get_global_attribute(waiting, []))
    try:
        with keras.StatelessScope(initialize_variables=False), without_parameters():
            yield
    finally:
        global_state.set_global_attribute(waiting, before)


@contextlib.contextmanager
def without_parameters() -> Iterator[None]:
    """A scope in which layers of torch do not hold their variables a second time.

    They do as parameters when they are built, a model around them too, and make values
    for that if there are none. On other backends layers have only their variables.
    """
    inside = "_track_variables" in vars(keras.Layer)
    if keras.backend.backend() != "torch" or inside:
        yield
        return
    keras.Layer._track_variables = lambda self: None
    try:
        yield
    finally:
        del keras.Layer._track_variables
