"""What a layer's attribute holds: whether a copy of the layer can share it."""

import collections
import contextlib
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

_STATE = (
    *(keras.layers.Layer, keras.Variable, keras.metrics.Metric),
    keras.optimizers.Optimizer,
)
# Of these each layer has one that no copy can share, or need not.
_MADE_AGAIN = (
    *(keras.KerasTensor, keras.random.SeedGenerator, keras.initializers.Initializer),
)
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType)
_BACKENDS = {"torch", "tensorflow", "jax", "jaxlib", "flax"}


def holds_state(value: Any) -> bool:
    """Whether layers, variables or a backend's own state are reached through a value.

    Through containers, attributes, bound methods and what functions close over.
    """
    seen: dict[int, Any] = {}
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, _LEAVES) or id(part) in seen:
            continue
        if isinstance(part, _STATE) or is_foreign_state(part):
            return True
        seen[id(part)] = part
        todo += _parts(part)
    return False


def same_value(one: Any, other: Any) -> bool:
    """Whether two attributes are equal, apart from the layers and variables in them."""
    if type(one) is not type(other):
        return False
    if one is other or isinstance(one, (*_STATE, *_MADE_AGAIN)):
        return True
    if isinstance(one, np.ndarray) or keras.ops.is_tensor(one):
        return np.array_equal(*map(keras.ops.convert_to_numpy, (one, other)))
    if isinstance(one, types.FunctionType):
        return one.__code__ is other.__code__
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same_value, one, other))
    if not isinstance(one, dict):
        held = [attributes(part) for part in (one, other)]
        if not any(held):
            return bool(one == other) or type(one).__eq__ is object.__eq__
        one, other = held
    return one.keys() == other.keys() and all(
        same_value(part, other[name]) for name, part in one.items()
    )


def is_foreign_state(value: Any) -> bool:
    """Whether a value has state that Keras does not know, such as a torch module."""
    if isinstance(value, _STATE) or isinstance(value, type):
        return False
    roots = {cls.__module__.split(".")[0] for cls in type(value).__mro__}
    if roots.isdisjoint(_BACKENDS):
        return False
    if keras.ops.is_tensor(value):
        return hasattr(value, "assign") or bool(getattr(value, "requires_grad", False))
    # A module, or a compiled function, which calls what it was made of.
    return (
        hasattr(value, "parameters")
        or hasattr(value, "variables")
        or any(
            isinstance(part, types.MethodType) and isinstance(part.__self__, _STATE)
            for part in (getattr(value, "__wrapped__", None),)
        )
    )


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    slots = [vars(cls).get("__slots__", ()) for cls in type(value).__mro__]
    each = [(names,) if isinstance(names, str) else names for names in slots]
    names = [name for some in each for name in some if not name.startswith("__")]
    held = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        yield from value
    if isinstance(value, types.MethodType):
        yield value.__self__
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, weakref.ref):
        yield value()
    elif isinstance(value, types.FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # one that is not filled yet
                yield cell.cell_contents
    elif not isinstance(value, keras.KerasTensor) and not hasattr(value, "tracker"):
        yield from attributes(value).values()
