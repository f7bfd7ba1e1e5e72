"""An optimizer's slots: which of its variables belong to which trained variable.

A *slot* is a list attribute of an optimizer with one entry (a variable or None) for
each of its trainable variables: `_momentums`, `_velocities`, ... Keras has no public
list of them, and `optimizer.variables` lays all behind one another.

A list is recognized by what its variables are, not by its length alone: entry i has
the shape of trained variable i and the name that `add_variable_from_reference` gives
it. What is not recognized is refused, for it would be cut or copied wrongly.

Seen with Keras 3.15.1.
"""

from collections.abc import Iterator
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.layers import TENSORFLOW_TRACKING

# Of every optimizer: its own lists of variables, and the optimizers that it wraps.
_STRUCTURE = frozenset(
    ("_variables", "_trainable_variables", "inner_optimizer", "_inner_optimizers")
)
# Adafactor keeps the second moment of a matrix as two vectors: which axis of
# the variable each has lost.
_FACTORED = {"_r": -1, "_c": -2}


def slots_of(part: keras.Optimizer) -> list[tuple[str, list]]:
    """The slots of an optimizer by attribute, without those of optimizers it wraps.

    Raises:
        ValueError: naming the class and the attribute, if it holds variables in
            another way, or of the shapes that were before.
    """
    trained = part._trainable_variables
    found = []
    for name, value in _attributes(part):
        if isinstance(value, keras.Variable):
            if len(value.shape):
                _refuse(part, name, [value])
        elif _is_slot(part, name, value, trained):
            found.append((name, value))
        elif held := list(_leaves(value)):
            _refuse(part, name, held)
    return found


def scalars_of(part: keras.Optimizer) -> list[tuple[str, keras.Variable]]:
    """List of (attribute name, variable) of the optimizer's own counters."""
    return [
        (name, value)
        for name, value in _attributes(part)
        if isinstance(value, keras.Variable)
    ]


def slot_axis(
    part: keras.Optimizer, name: str, variable: keras.Variable, axis: int | None
) -> int | None:
    """Where the neurons of a trained variable are in its entry of a slot.

    `axis` is that of `variable`, which has the shape that the slot was made for. None:
    there is nothing to cut.
    """
    if axis is None or not _is_factored(part, name):
        return axis
    lost = lost_axis(part, name, variable)
    # None: a placeholder.
    return None if lost is None or lost == axis else axis - (axis > lost)


def lost_axis(part: keras.Optimizer, name: str, variable: keras.Variable) -> int | None:
    """The axis of a variable over which its entry of a slot is a mean, or None."""
    rank = len(variable.shape)
    return _FACTORED[name] % rank if rank > 1 and _is_factored(part, name) else None


def _attributes(part: keras.Optimizer) -> list[tuple[str, Any]]:
    others = _STRUCTURE | TENSORFLOW_TRACKING
    return [(name, value) for name, value in vars(part).items() if name not in others]


def _is_slot(part: keras.Optimizer, name: str, value: Any, trained: list) -> bool:
    if not isinstance(value, list) or len(value) != len(trained):
        return False
    if not all(v is None or isinstance(v, keras.Variable) for v in value):
        return False
    pairs = [(s, v) for s, v in zip(value, trained, strict=True) if s is not None]
    if _is_factored(part, name):
        return all(
            slot.name == variable.name
            and tuple(slot.shape) == _factored_shape(name, tuple(variable.shape))
            for slot, variable in pairs
        )
    # What `add_variable_from_reference` calls it: one ending for the whole list.
    endings = set()
    for slot, variable in pairs:
        reference = variable.path.replace("/", "_") + "_"
        if tuple(slot.shape) != tuple(variable.shape):
            return False
        if not slot.name.startswith(reference):
            return False
        endings.add(slot.name.removeprefix(reference))
    return len(endings) < 2


def _is_factored(part: keras.Optimizer, name: str) -> bool:
    return isinstance(part, keras.optimizers.Adafactor) and name in _FACTORED


def _factored_shape(name: str, shape: tuple) -> tuple:
    if len(shape) < 2:
        return ()
    lost = _FACTORED[name] % len(shape)
    return shape[:lost] + shape[lost + 1 :]


def _leaves(value: Any) -> Iterator[Any]:
    """The variables and optimizers in lists, tuples, sets and dicts."""
    if isinstance(value, (keras.Variable, keras.Optimizer)):
        yield value
    elif isinstance(value, (list, tuple, set, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)


def _refuse(part: keras.Optimizer, name: str, held: list) -> None:
    raise ArgumentError(
        f"The state of optimizer {type(part).__name__} cannot be carried through "
        f"compaction: its attribute `{name}` ({', '.join(v.name for v in held[:3])}"
        f"{', ...' if len(held) > 3 else ''}) is neither one number nor a list of one "
        "variable for each trainable variable, in their order, of its shape and named "
        "after it. Make such lists with `self.add_optimizer_variables(variables, "
        "name)` in `build`, use an optimizer of Keras's own, or pass compact='off'; if "
        "its variables became narrower in another model, compile this one again."
    )
