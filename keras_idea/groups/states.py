"""The pruning state of layers that hold none themselves.

A `Prunable` FFN has its scores and its mask among its variables. Of any other layer
nothing is in the model: they lie here, by the layer, as long as it lives.
"""

import weakref
from collections.abc import Sequence
from contextlib import nullcontext

import keras

from keras_idea.groups.cut import Cut
from keras_idea.groups.state import NeuronState, scope_at

_STATES: weakref.WeakKeyDictionary[keras.layers.Layer, NeuronState] = (
    weakref.WeakKeyDictionary()
)


def held_state(layer: keras.layers.Layer) -> NeuronState | None:
    """The state of the neurons that a layer makes, or None if there is none yet."""
    return _STATES.get(layer)


def state_of(layer: keras.layers.Layer, cuts: Sequence[Cut]) -> NeuronState:
    """The built state of the neurons that a layer makes; a new one if there is none.

    The cuts say how they lie in its weights, the kernels first.
    """
    state = _STATES.get(layer)
    if state is None:
        state = _STATES[layer] = NeuronState(name="neuron_state")
        kernels = [cut for cut in cuts if not cut.is_bias]
        lengths = [cut.weights for cut in kernels]
        first, matrices = kernels[0], sum(cut.matrices for cut in kernels)
        experts = None if first.group is None else first.variable.shape[first.group]
        # In the layer's scope, so that no two states have the same path; of a layer in
        # several replicas with a copy in each.
        strategy = getattr(first.variable.value, "distribute_strategy", None)
        with scope_at(layer.path), strategy.scope() if strategy else nullcontext():
            state.build(first.neurons, max(lengths), matrices, experts)
        state.row_lengths = tuple(lengths)
    return state
