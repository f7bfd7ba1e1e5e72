"""The prunable FFNs of a model, behind one kind of handle."""

import dataclasses

import keras
import numpy as np

from keras_idea.hub.families import is_backbone
from keras_idea.hub.ffn import HubFFN, converted_ffns
from keras_idea.keras_private.layer_walk import walk
from keras_idea.layers.cut import Cut
from keras_idea.layers.neuron_state import NeuronState
from keras_idea.layers.prunable import Prunable
from keras_idea.typing import Tensor


@dataclasses.dataclass(frozen=True)
class FFN:
    """One FFN that can be pruned, whatever layer it lives in.

    Attributes:
        name: str, the path of its layer.
        layer: the Keras layer that owns it: a `PrunableGatedFFN` or `PrunableFFN`, or
            the layer of a KerasHub model that holds its matrices.
        state: `NeuronState`, its scores and mask.
        weights: what holds its kernels: the layer itself, or a `HubFFN`. All experts of
            a mixture are one `FFN`; of each of them equally many neurons live.
    """

    name: str
    layer: keras.layers.Layer
    state: NeuronState
    weights: Prunable | HubFFN

    @property
    def hidden_dim(self) -> int:
        """int, neurons the kernels have places for."""
        return self.weights.hidden_dim

    @property
    def full_dim(self) -> int:
        """int, neurons it was built with, before any narrowing."""
        return self.state.full_dim or self.hidden_dim

    @property
    def original_indices(self) -> np.ndarray:
        """The numbers that its neurons had at first, as an int array."""
        if not self.state.built:
            return np.arange(self.hidden_dim)
        index = keras.ops.convert_to_numpy(self.state.original_index)
        return index.astype("int64")

    def by_first_number(self, values: np.ndarray) -> np.ndarray:
        """Values of its neurons, in the places that these had at first.

        Args:
            values: float array, of the mask's shape.

        Returns:
            float array as wide as it was built, NaN where a neuron was cut out.
        """
        index = self.original_indices
        every = np.full((*index.shape[:-1], self.full_dim), np.nan, values.dtype)
        np.put_along_axis(every, index, values, axis=-1)
        return every

    @property
    def width(self) -> int:
        """int, neurons alive now."""
        return self.kept_neurons().shape[-1] if self.state.built else self.hidden_dim

    @property
    def kernels(self) -> tuple[keras.Variable, ...]:
        """The variables up, gate (if there is one of its own) and down."""
        return tuple(cut.variable for cut in self.kernel_cuts())

    @property
    def device_parts(self) -> int:
        """int, the equal parts into which devices cut its neurons; 1: they do not."""
        parts = 1
        for cut in self.kernel_cuts():
            sharding = getattr(cut.variable.value, "sharding", None)  # of jax's arrays
            if sharding is not None:
                shape, axis = tuple(cut.variable.shape), cut.axis
                parts = max(parts, shape[axis] // sharding.shard_shape(shape)[axis])
        return parts

    @property
    def shows_hidden(self) -> bool:
        """bool, whether its hidden activations pass through the state."""
        return getattr(self.weights, "shows_hidden", True)

    @property
    def mask(self) -> keras.Variable:
        """Variable `(hidden_dim,)`, float32 in {0, 1}; see `NeuronState`."""
        return self.state.mask

    @property
    def scores(self) -> keras.Variable:
        """Variable `(M, hidden_dim)` or `(M, hidden_dim, input_dim)` of M kernels."""
        return self.state.scores

    def importance(self) -> Tensor:
        """Importance `(hidden_dim,)` of the neurons by the present scores."""
        return self.state.importance()

    def kept_neurons(self) -> np.ndarray:
        """Indices of the neurons alive now, ascending: `NeuronState.kept_neurons`."""
        return self.state.kept_neurons()

    def kernel_cuts(self) -> list[Cut]:
        """How its neurons lie in the kernels."""
        return [cut for cut in self.cuts() if not cut.is_bias]

    def cuts(self) -> list[Cut]:
        """How its neurons lie in the weights, the kernels first."""
        return self.weights.cuts()


def find_ffns(model: keras.layers.Layer) -> list[FFN]:
    """Finds every prunable FFN in a model, however deeply nested.

    Args:
        model: a Keras model or layer: with layers that can be pruned, or a KerasHub
            model that `make_prunable` has converted, or with both in it. FFNs that
            it makes only when it is built are found once it is.

    Returns:
        list of `FFN` handles in the model's own order; empty if there is none.

    Raises:
        ValueError: if `model` is no Keras layer.

    Example:
    >>> for ffn in find_ffns(model):
    ...     print(ffn.name, ffn.width, "of", ffn.hidden_dim)
    block_0/ffn_0 8 of 8
    block_1/ffn_1 8 of 8
    """
    found: dict[int, tuple[keras.layers.Layer, Prunable | HubFFN]] = {}
    for layer in walk(model):
        if isinstance(layer, Prunable):
            found[id(layer)] = (layer, layer)
        elif is_backbone(layer):
            found |= {id(ffn.owner): (ffn.owner, ffn) for ffn in converted_ffns(layer)}
    paths = [layer.path or layer.name for layer, _ in found.values()]
    names = [
        path if paths.count(path) == 1 else f"{path}_{paths[:i].count(path)}"
        for i, path in enumerate(paths)
    ]
    pairs = zip(names, found.values(), strict=True)
    return [
        FFN(name, layer, weights.state, weights) for name, (layer, weights) in pairs
    ]
