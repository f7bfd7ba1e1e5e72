"""An optimizer's slots: finding them, slicing them, carrying them over.

A *slot* is a list attribute of an optimizer with one entry (a variable or None)
for each of its trainable variables: `_momentums`, `_velocities`,
`_accumulated_gradients`, ... `LossScaleOptimizer` and `MultiOptimizer` wrap
optimizers that have slots of their own.
"""

from typing import Any

import keras
from keras import ops
from keras.src.utils import tracking

from keras_idea.functional.masks import take_neurons
from keras_idea.keras_private.optimizer_parts import parts
from keras_idea.surgery.pruner import own_variables
from keras_idea.surgery.resize import resize

# Adafactor keeps the second moment of a matrix as two vectors: which axis of
# the variable each has lost.
FACTORED_SLOTS = {"_r": -1, "_c": -2}


def built_optimizer(model: keras.layers.Layer) -> Any:
    """The optimizer of a model whose state must follow its variables, or None."""
    optimizer = getattr(model, "optimizer", None)
    return optimizer if optimizer is not None and optimizer.built else None


def check_carriable(optimizer):
    """Refuses an optimizer whose state cannot be sliced with its variables.

    Args:
        optimizer: a built Keras optimizer.

    Raises:
        ValueError: naming the variables of unknown use.
    """
    for part in parts(optimizer):
        known = {id(slot) for _, slots in _slots(part) for slot in slots}
        known |= {id(variable) for _, variable in _scalars(part)}
        own = set(map(id, own_variables(part)))
        unknown = [v.name for v in part._variables if id(v) in own - known]
        if unknown:
            raise ValueError(
                f"The state of optimizer {type(part).__name__} cannot be carried "
                f"through compaction: {', '.join(unknown)} belong to no list of one "
                "variable for each trainable variable. Use an optimizer that keeps "
                "its state so (all of Keras's do), or pass compact='off'."
            )


def narrow_variable(optimizer, variable, kept, axis):
    """Slices, in place, a trained variable and its slots to the kept neurons.

    Args:
        optimizer: the built Keras optimizer that trains it, or None.
        variable: a Keras variable.
        kept: ascending indices of the neurons that stay.
        axis: int, the neurons' axis of `variable`.
    """
    trainers = [] if optimizer is None else parts(optimizer)
    keys = [part._var_key(variable) for part in trainers]
    for part, key in zip(trainers, keys, strict=True):
        index = part._trainable_variables_indices.get(key)
        for name, slots in _slots(part) if index is not None else []:
            slot_axis = _slot_axis(name, slots[index], variable, axis)
            if slot_axis is not None:
                cut = take_neurons(slots[index].value, kept, slot_axis)
                resize(slots[index], cut)
    resize(variable, take_neurons(variable.value, kept, axis))
    for part, key in zip(trainers, keys, strict=True):
        _rename_key(part, key, part._var_key(variable))


def set_variables(optimizer, variables):
    """Makes an optimizer train these variables in this order, in place.

    Args:
        optimizer: a built Keras optimizer.
        variables: list of variables: all that it has trained so far, and new ones
            with `overwrite_with_gradient=True`, for which it keeps no slots.
    """
    for part in parts(optimizer):
        index = {id(v): i for i, v in enumerate(part._trainable_variables)}
        order = [index.get(id(variable)) for variable in variables]
        for name, slots in _slots(part):
            ordered = [None if i is None else slots[i] for i in order]
            _set_untracked(part, name, ordered)
        _set_untracked(part, "_trainable_variables", list(variables))
        for i, variable in enumerate(variables):
            part._trainable_variables_indices[part._var_key(variable)] = i


def drop_variables(optimizer, variables):
    """Takes variables out of the optimizer, in place, with their slots.

    Args:
        optimizer: a built Keras optimizer.
        variables: list of the variables to be no longer trained.
    """
    gone = {id(variable) for variable in variables}
    for part in parts(optimizer):
        for variable in variables:
            part._trainable_variables_indices.pop(part._var_key(variable), None)
        trained = part._trainable_variables
        stay = [i for i, v in enumerate(trained) if id(v) not in gone]
        for name, slots in _slots(part):
            for slot in (slots[i] for i, v in enumerate(trained) if id(v) in gone):
                if slot is not None:
                    part._tracker.untrack(slot)
            _set_untracked(part, name, [slots[i] for i in stay])
        _set_untracked(part, "_trainable_variables", [trained[i] for i in stay])
        for index, variable in enumerate(part._trainable_variables):
            part._trainable_variables_indices[part._var_key(variable)] = index


def copy_optimizer(optimizer, pairs):
    """A new optimizer over new variables, with the old one's state.

    Args:
        optimizer: the old optimizer; it is left as it is.
        pairs: list of (old variable, new variable, kept, axis) in the new
            model's order; `axis` None where nothing is cut.

    Returns:
        An optimizer of the same class and config, built if the old one is.
    """
    copy = _from_config(optimizer)
    if not optimizer.built:
        return copy
    copy.build([new for _, new, _, _ in pairs])
    for source, target in zip(parts(optimizer), parts(copy), strict=True):
        for name, variable in _scalars(source):
            getattr(target, name).assign(ops.copy(variable.value))
        target_slots = dict(_slots(target))
        for name, slots in _slots(source):
            for old, new, kept, axis in pairs:
                index = source._trainable_variables_indices.get(source._var_key(old))
                if index is None or slots[index] is None:
                    continue
                slot_axis = _slot_axis(name, slots[index], old, axis)
                value = take_neurons(slots[index].value, kept, slot_axis)
                target_slots[name][target._get_variable_index(new)].assign(value)
        _copy_decay_exclusions(source, target, pairs)
    return copy


@tracking.no_automatic_dependency_tracking
def _set_untracked(part, name, value):
    # Keras would else track a list of model variables as the optimizer's own.
    setattr(part, name, value)


def _slots(part):
    """List of (attribute name, list with an entry a trainable variable)."""
    count = len(part._trainable_variables)
    return [
        (name, value)
        for name, value in vars(part).items()
        if name not in ("_variables", "_trainable_variables")
        and isinstance(value, list)
        and len(value) == count
        and all(v is None or isinstance(v, keras.Variable) for v in value)
    ]


def _scalars(part):
    """List of (attribute name, variable) of the optimizer's own counters."""
    return [(n, v) for n, v in vars(part).items() if isinstance(v, keras.Variable)]


def _slot_axis(name, slot, variable, axis):
    """The neurons' axis in a slot of `variable`, or None: nothing to cut."""
    if slot is None or axis is None:
        return None
    rank = len(variable.shape)
    if len(slot.shape) == rank:
        return axis
    if name in FACTORED_SLOTS and rank >= 2:
        lost = FACTORED_SLOTS[name] % rank
        return None if lost == axis else axis - (axis > lost)
    return None


def _from_config(optimizer):
    config = optimizer.get_config()
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        return type(optimizer)(**{**config, "inner_optimizer": _from_config(inner)})
    rate = getattr(optimizer, "_learning_rate", None)
    if callable(rate) and not isinstance(rate, keras.Variable):
        # A plain function has no config; a schedule has no state to share.
        copy = type(optimizer).from_config({**config, "learning_rate": 0.0})
        copy.learning_rate = rate
        return copy
    return type(optimizer).from_config(config)


def _rename_key(part, old_key, new_key):
    """Follows a variable that Keras knows by another key since it was resized.

    On tensorflow the key is that of the backend's variable, which is a new one.
    """
    if old_key == new_key:
        return
    for name in ("_trainable_variables_indices", "_var_to_optimizer_idx"):
        keyed = getattr(part, name, {})
        if old_key in keyed:
            keyed[new_key] = keyed.pop(old_key)
    excluded: set = getattr(part, "_exclude_from_weight_decay", set())
    if old_key in excluded:
        excluded.remove(old_key)
        excluded.add(new_key)
    getattr(part, "_exclude_from_weight_decay_cache", {}).clear()


def _copy_decay_exclusions(source, target, pairs):
    """`exclude_from_weight_decay` is in no config and goes by object identity."""
    if hasattr(source, "_exclude_from_weight_decay"):
        excluded = source._exclude_from_weight_decay
        target._exclude_from_weight_decay = {
            target._var_key(new)
            for old, new, _, _ in pairs
            if source._var_key(old) in excluded
        }
        pattern = source._exclude_from_weight_decay_pattern
        target._exclude_from_weight_decay_pattern = pattern
        target._exclude_from_weight_decay_cache = {}
