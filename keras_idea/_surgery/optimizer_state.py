"""Slices an optimizer's state with the variables that it trains, and copies it.

A *slot* is a variable of an optimizer that belongs to a trained one: a momentum, an
average. Keras names it after that one (`add_variable_from_reference`), so the longest
path that a name begins with says whose it is.
"""

import dataclasses
from collections.abc import Sequence

import keras
from keras import ops

from keras_idea._groups.cut import Cut
from keras_idea._keras.optimizer_variables import (
    copy_decay_exclusions,
    innermost,
    parts,
    rate_source,
    trained_variables,
)
from keras_idea._step.pruner import own_variables
from keras_idea.errors import ArgumentError


def built_optimizer(model: keras.layers.Layer) -> keras.Optimizer | None:
    """Returns a model's optimizer if it has a state, or None."""
    optimizer = getattr(model, "optimizer", None)
    return optimizer if optimizer is not None and optimizer.built else None


def slots_of(
    optimizer: keras.Optimizer, variable: keras.Variable
) -> list[keras.Variable]:
    """Returns the slots of a trained variable, which have its shape."""
    begins, trained = _beginning(variable), _trained(optimizer)
    names = [_beginning(other) for other in trained]
    longer = tuple(name for name in names if len(name) > len(begins))
    same = [o for o, name in zip(trained, names, strict=True) if name == begins]
    # Of variables with one path each name is there several times, in their order.
    place = next((i for i, other in enumerate(same) if other is variable), None)
    if place is None:
        return []
    named: dict[str, list[keras.Variable]] = {}
    for slot in own_variables(optimizer):
        if slot.name.startswith(begins) and not slot.name.startswith(longer):
            named.setdefault(slot.name, []).append(slot)
    found = [slots[place] for slots in named.values() if len(slots) == len(same)]
    return [slot for slot in found if slot.shape == variable.shape]


def _beginning(variable: keras.Variable) -> str:
    return variable.path.replace("/", "_") + "_"


def check_carriable(optimizer: keras.Optimizer) -> None:
    """Refuses an optimizer whose state cannot be sliced with its variables."""
    trained = _trained(optimizer)
    slots = {id(s) for variable in trained for s in slots_of(optimizer, variable)}
    own = own_variables(optimizer)
    unknown = [v.name for v in own if len(v.shape) and id(v) not in slots]
    if unknown:
        raise ArgumentError(
            f"The state of optimizer {type(innermost(optimizer)).__name__} cannot be "
            f"narrowed: {', '.join(unknown[:3])} has another shape than the variable "
            "that it is named after. Use an optimizer that makes its state by "
            "`add_optimizer_variables`, or pass compact='off'."
        )


def with_slots(optimizer: keras.Optimizer | None, cut: Cut) -> list[Cut]:
    """A variable and its slots, as they are to be cut; its own cut first."""
    slots = [] if optimizer is None else slots_of(optimizer, cut.variable)
    return [cut, *(dataclasses.replace(cut, variable=slot) for slot in slots)]


def copy_optimizer(
    optimizer: keras.Optimizer, pairs: Sequence[tuple[keras.Variable, keras.Variable]]
) -> keras.Optimizer:
    """A new optimizer over other variables, with the same state.

    `pairs` are the variables of a model, each with the one in its place.
    """
    copy = optimizer_like(optimizer)
    copies = {id(old): new for old, new in pairs}
    for source, target in zip(parts(optimizer), parts(copy), strict=True):
        copy_decay_exclusions(source, target, pairs)
    if not optimizer.built:
        return copy
    trained = _trained(optimizer)
    if not all(id(variable) in copies for variable in trained):
        raise ArgumentError(
            f"Optimizer {type(optimizer).__name__} trains variables that are not the "
            "model's. Compile the model again, with an optimizer of its own."
        )
    copy.build([copies[id(variable)] for variable in trained])
    for old, new in zip(own_variables(optimizer), copy.variables, strict=True):
        new.assign(ops.copy(old.value))  # jax donates the arrays of a train step
    return copy


def optimizer_like(optimizer: keras.Optimizer) -> keras.Optimizer:
    """A new optimizer of the same class and config, without state."""
    config = optimizer.get_config()
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        return type(optimizer)(**{**config, "inner_optimizer": optimizer_like(inner)})
    rate = rate_source(optimizer)
    if callable(rate) and not isinstance(rate, keras.Variable):
        # A plain function has no config; a schedule has no state to share.
        copy = type(optimizer).from_config({**config, "learning_rate": 0.0})
        copy.learning_rate = rate
        return copy
    return type(optimizer).from_config(config)


def _trained(optimizer: keras.Optimizer) -> list[keras.Variable]:
    return trained_variables(innermost(optimizer))
