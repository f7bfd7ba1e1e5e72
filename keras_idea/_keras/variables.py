"""A variable's shape and its first value, which the public interface never changes."""

import collections
import contextlib
import random
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.random.seed_generator import global_seed_generator

from keras_idea._keras.models import instead, instead_here


def give_value(variable: keras.Variable, value: Any) -> None:
    """Gives a variable a value of another shape, as if it were made with it.

    `assign` refuses another shape. The object stays, its layout over the devices too,
    and TensorFlow's name of it: an optimizer finds by it what must not decay.
    Seen with Keras 3.15.1.
    """
    with contextlib.ExitStack() as scopes:
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            layer, slash, _ = variable.value.name.rpartition("/")
            if slash:
                scopes.enter_context(tf.name_scope(layer + slash))
        variable._initialize(value)
    variable._shape = variable._validate_shape(value.shape)


def copy_training(variable: keras.Variable, copy: keras.Variable) -> None:
    """Sets on a copy of a variable how that is trained."""
    copy.trainable = variable.trainable
    copy.regularizer, copy.constraint = variable.regularizer, variable.constraint
    copy.overwrite_with_gradient = variable.overwrite_with_gradient


def shaped(
    variable: keras.Variable, shape: tuple[int, ...]
) -> contextlib.AbstractContextManager[None]:
    """A scope in which a variable says that it has another shape; its value stays.

    For tracing functions of values. Seen with Keras 3.15.1.
    """
    return instead(variable, "_shape", shape)


@contextlib.contextmanager
def begun_as_zeros(variables: Iterable[keras.Variable]) -> Iterator[None]:
    """A scope in which variables without values would be given zeros.

    On torch the symbolic call of a layer makes the values that it does not have yet,
    again at each reading; random ones take long. Seen with Keras 3.15.1.
    """
    zeros = keras.initializers.Zeros()
    with contextlib.ExitStack() as changes:
        for variable in variables:
            if variable._value is None:
                changes.enter_context(instead(variable, "_initializer", zeros))
        yield


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
    if keras.backend.backend() != "torch":
        yield
        return
    with instead_here(keras.Layer, "_track_variables", lambda self: None):
        yield


@contextlib.contextmanager
def as_never_made() -> Iterator[None]:
    """A scope in which layers may be made and forgotten, without a warning.

    Each time they get the same names and the same seeds of Dropout and such. Python's
    random state, and the names of layers that are made later, stay as they were.
    """
    names, state = "object_name_uids", random.getstate()
    before = global_state.get_global_attribute(names)
    random.seed(0)
    global_state.set_global_attribute(names, collections.defaultdict(int))
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        random.setstate(state)
        global_state.set_global_attribute(names, before)


def global_seed() -> keras.Variable:
    """The state of what `keras.random` draws from where it is given no seed.

    Made, where nothing has drawn yet, by a number of Python's `random`.
    `keras.utils.set_random_seed` sets it; nothing public reads it. Seen with Keras
    3.15.1.
    """
    return global_seed_generator().state
