"""An optimizer's slots (see `optimizer_slots`): slicing them, carrying them over.

`LossScaleOptimizer` and `MultiOptimizer` wrap optimizers that have slots of their own.
"""

from collections.abc import Iterable, Sequence

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.pairing import Pair, cut_to
from keras_idea.groups.cut import Cut
from keras_idea.keras_private.optimizer_slots import (
    lost_axis,
    scalars_of,
    slot_axis,
    slots_of,
)
from keras_idea.keras_private.optimizer_variables import (
    copy_decay_exclusions,
    index_of,
    parts,
    rate_source,
    tracked_variables,
    trained_variables,
)
from keras_idea.step.pruner import own_variables


def built_optimizer(model: keras.layers.Layer) -> keras.Optimizer | None:
    """The optimizer of a model whose state must follow its variables, or None."""
    optimizer = getattr(model, "optimizer", None)
    return optimizer if optimizer is not None and optimizer.built else None


def check_carriable(optimizer: keras.Optimizer, cuts: Iterable[Cut] = ()) -> None:
    """Refuses an optimizer whose state cannot be sliced with its variables.

    The cuts say how the neurons lie in what is to be sliced.
    """
    cuts = list(cuts)
    for part in parts(optimizer):
        for cut in cuts:
            _check_groups(part, cut)
        known = {id(slot) for _, slots in slots_of(part) for slot in slots}
        known |= {id(variable) for _, variable in scalars_of(part)}
        own = set(map(id, own_variables(part)))
        unknown = [v.name for v in tracked_variables(part) if id(v) in own - known]
        if unknown:
            raise ArgumentError(
                f"The state of optimizer {type(part).__name__} cannot be carried "
                f"through compaction: {', '.join(unknown)} are not in a list "
                "with one variable per trainable variable. Use an optimizer that keeps "
                "its state in such lists (all of Keras's do), or pass compact='off'."
            )


def _check_groups(part: keras.Optimizer, cut: Cut) -> None:
    if cut.group is None:
        return
    for name, _ in slots_of(part):
        if lost_axis(part, name, cut.variable) == cut.group:
            raise ArgumentError(
                f"{type(part).__name__} keeps one number for the neurons of all "
                f"experts in '{cut.variable.path}', but each expert keeps different "
                "neurons. Use another optimizer, or pass compact='off'."
            )


def with_slots(optimizer: keras.Optimizer | None, cut: Cut) -> list[Cut]:
    """A variable, and its slots that have its neurons too, its own cut first."""
    found: list[Cut | None] = [cut]
    for part in [] if optimizer is None else parts(optimizer):
        index = index_of(part, cut.variable)
        if index is not None:
            for name, slots in slots_of(part):
                found.append(_cut_of_slot(part, name, slots[index], cut))
    return [each for each in found if each is not None]


def _cut_of_slot(
    part: keras.Optimizer, name: str, slot: keras.Variable | None, cut: Cut
) -> Cut | None:
    axis = slot_axis(part, name, cut.variable, cut.axis)
    return None if slot is None or axis is None else cut.of(slot, axis)


def copy_optimizer(
    optimizer: keras.Optimizer, pairs: Sequence[Pair]
) -> keras.Optimizer:
    """A new optimizer over new variables, in the order of `pairs`, with the old state.

    It is built if the old one is. Refuses one that its config does not describe.
    """
    copy = optimizer_like(optimizer)
    carry_state(optimizer, copy, pairs)
    return copy


def carry_state(
    optimizer: keras.Optimizer, copy: keras.Optimizer, pairs: Sequence[Pair]
) -> None:
    """Gives an optimizer's state to one of the same config, over new variables.

    Carries nothing for variables that the first optimizer does not train, and nothing
    at all if it is not built.
    """
    if not optimizer.built:
        return
    trained = {id(v) for part in parts(optimizer) for v in trained_variables(part)}
    own = [pair for pair in pairs if id(pair[0]) in trained]
    copy.build([new for _, new, _ in own])
    for source, target in zip(parts(optimizer), parts(copy), strict=True):
        _copy_part(source, target, own)


def _copy_part(
    source: keras.Optimizer, target: keras.Optimizer, pairs: Sequence[Pair]
) -> None:
    scalars, slots = dict(scalars_of(source)), dict(slots_of(source))
    new_scalars, new_slots = dict(scalars_of(target)), dict(slots_of(target))
    places = [(index_of(source, old), index_of(target, new)) for old, new, _ in pairs]
    alike = scalars.keys() == new_scalars.keys() and slots.keys() == new_slots.keys()
    if not alike or any((a is None) != (b is None) for a, b in places):
        raise ArgumentError(
            f"Optimizer {type(source).__name__}, made again from its config, keeps "
            "different state or trains other variables, so compact() cannot copy it. "
            "Give the class a `get_config` with all arguments of its constructor."
        )
    for name, variable in scalars.items():
        new_scalars[name].assign(ops.copy(variable.value))
    for name, slot in slots.items():
        for (_, _, stays), (i, j) in zip(pairs, places, strict=True):
            if i is None or j is None or slot[i] is None:
                continue
            cuts = [(n, _cut_of_slot(source, name, slot[i], cut)) for n, cut in stays]
            of_slot = [(neurons, cut) for neurons, cut in cuts if cut is not None]
            new_slots[name][j].assign(cut_to(slot[i], of_slot))
    copy_decay_exclusions(source, target, [(old, new) for old, new, _ in pairs])


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
