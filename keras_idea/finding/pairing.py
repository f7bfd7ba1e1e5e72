"""Which variable of a narrow copy takes over which one of the wide model."""

from collections.abc import Sequence
from typing import TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.functional.masks import take_neurons
from keras_idea.groups.cut import Cut
from keras_idea.groups.state import NeuronState
from keras_idea.keras_private.layers import walk
from keras_idea.keras_private.variables import plain_name
from keras_idea.typing import Tensor

#: The neurons that stay, and how they lie in a variable.
Kept: TypeAlias = tuple[np.ndarray, Cut]
#: An old variable, the new one, what stays of it: a cut for each of its axes that has
#: neurons; empty: all.
Pair: TypeAlias = tuple[keras.Variable, keras.Variable, list[Kept]]


def plain_variables(model: keras.layers.Layer) -> list[keras.Variable]:
    """The variables of a model, without scores and masks."""
    held = [layer.variables for layer in walk(model) if isinstance(layer, NeuronState)]
    states = {id(variable) for variables in held for variable in variables}
    return [variable for variable in model.variables if id(variable) not in states]


def paired_variables(
    model: keras.layers.Layer,
    narrow: keras.layers.Layer,
    kept: Sequence[tuple[FFN, np.ndarray]],
) -> list[Pair]:
    """Pairs each variable of a model with that of a copy which takes its value.

    The FFNs of the copy, `narrow`, are plain and as wide as the neurons `kept` of the
    model's. The pairs are in the copy's order. Refuses a copy of other variables.
    """
    cuts: dict[int, list[Kept]] = {}
    for ffn, neurons in kept:
        for cut in ffn.held_cuts():
            cuts.setdefault(id(cut.variable), []).append((neurons, cut))
    old, new = plain_variables(model), narrow.variables
    pairs = [(a, b, cuts.get(id(a), [])) for a, b in zip(old, new, strict=False)]
    for a, b, stays in pairs:
        shape = list(a.shape)
        for neurons, cut in stays:
            shape[cut.axis] -= cut.lost(neurons.shape[-1])
        if (tuple(shape), plain_name(a)) != (tuple(b.shape), plain_name(b)):
            break
    else:
        if len(old) == len(new):
            return pairs
    raise ArgumentError(
        f"The copy of model '{model.name}' has other variables than the model: "
        f"{len(new)} against {len(old)}. Other FFNs were found in the copy, or a "
        "config of KerasHub's does not describe the model fully. Narrow the "
        "model in `fit`, with compact='end', which copies nothing."
    )


def cut_to(variable: keras.Variable, stays: list[Kept]) -> Tensor:
    """What stays of a variable's value; always a copy."""
    # On jax two variables that share an array cannot both be donated to a step.
    value = ops.copy(variable.value)
    shared: dict[int, np.ndarray] = {}  # an axis that several groups have units on
    for neurons, cut in stays:
        if cut.entries is None:
            value = cut.take(neurons, value)
            continue
        places = cut.places(neurons)
        shared[cut.axis] = np.intersect1d(places, shared.get(cut.axis, places))
    for axis, places in shared.items():
        value = take_neurons(value, places, axis)
    return value
