"""A layer whose `call` reads other values than its variables hold.

What is changed lies in the objects' dictionaries: by `setattr` Keras, TensorFlow and
torch would track it, and a scope around each step of a training has to cost nothing.
Seen with Keras 3.15.1.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras

#: The dictionary of an object, a name in it, and what is to be there, or `ABSENT`.
Change: TypeAlias = tuple[dict[str, Any], str, Any]
ABSENT = object()


@contextlib.contextmanager
def changed(changes: Sequence[Change]) -> Iterator[None]:
    """A scope in which objects have other attributes."""
    before = [(held, name, held.get(name, ABSENT)) for held, name, _ in changes]
    try:
        _carry_out(changes)
        yield
    finally:
        _carry_out(before)


def as_they_are(changes: Sequence[Change]) -> list[Change]:
    """The changes that have everything as it is now, in a scope of others too."""
    return [(held, name, held.get(name, ABSENT)) for held, name, _ in changes]


def _carry_out(changes: Sequence[Change]) -> None:
    for held, name, value in changes:
        if value is ABSENT:
            held.pop(name, None)
        else:
            held[name] = value


def reads(
    caller: keras.layers.Layer,
    values: Sequence[tuple[keras.layers.Layer, str, Callable[[], Any]]],
    note: Callable[[], None],
) -> list[Change]:
    """The changes by which a layer's `call` reads values where there are variables.

    `values` has the layer that holds a variable, which may be another one, the name of
    its attribute, and what gives the value. It is asked inside of the call: there Keras
    casts what a variable gives, and jax has traced values. `note` is told of each call.
    The sizes of the call's inputs, which Keras compares before it, are not compared.
    """
    original = caller.call

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        note()
        with changed([(vars(holder), name, value()) for holder, name, value in values]):
            return original(*args, **kwargs)

    own = vars(caller)
    return [(own, "call", call), (own, "_input_spec", None)]


def regularized(variable: keras.Variable, part: Callable[[Any], Any]) -> list[Change]:
    """The changes by which a variable's regularizer is given a part of its value."""
    regularizer = variable.regularizer
    if regularizer is None:
        return []

    def of_part(value: Any) -> Any:
        return regularizer(part(keras.ops.convert_to_tensor(value)))

    held = vars(variable)
    name = "_regularizer" if "_regularizer" in held else "regularizer"
    return [(held, name, of_part)]


def names_of(layer: keras.layers.Layer, variable: keras.Variable) -> list[str]:
    """The attributes of a layer that hold a variable."""
    return [name for name, value in vars(layer).items() if value is variable]
