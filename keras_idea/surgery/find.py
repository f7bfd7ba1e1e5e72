"""The prunable FFNs of a model, behind one kind of handle."""

import dataclasses

import keras

from keras_idea.layers.neuron_state import NeuronState
from keras_idea.layers.prunable_gated_ffn import PrunableGatedFFN


@dataclasses.dataclass(frozen=True)
class FFN:
    """One gated FFN that can be pruned, whatever layer it lives in.

    Attributes:
        name: str, the path of its layer.
        layer: the Keras layer that owns it.
        state: `NeuronState`, its scores and mask.
    """

    name: str
    layer: PrunableGatedFFN
    state: NeuronState

    @property
    def hidden_dim(self):
        """int, neurons the kernels have places for."""
        return self.layer.hidden_dim

    @property
    def width(self):
        """int, neurons alive now."""
        return self.layer.width

    @property
    def kernels(self):
        """The variables up, gate and down."""
        return self.layer.up_kernel, self.layer.gate_kernel, self.layer.down_kernel

    @property
    def mask(self):
        """Variable `(hidden_dim,)`, float32 in {0, 1}."""
        return self.state.mask

    @property
    def scores(self):
        """Variable `(3, hidden_dim)` or `(3, hidden_dim, input_dim)`."""
        return self.state.scores

    def cuts(self):
        """List of (variable, axis of its neurons): what narrowing must slice."""
        axes = self.layer.neuron_axes().items()
        return [(getattr(self.layer, n), axis) for n, axis in axes if axis is not None]

    def kept_neurons(self):
        """Indices of the neurons alive now, ascending, as an int array."""
        return self.layer.kept_neurons()


def find_ffns(model):
    """Finds every prunable FFN in a model, however deeply nested.

    Args:
        model: a Keras model or layer. FFNs that it makes only when it is built are
            found once it is.

    Returns:
        list of `FFN` handles in the model's own order; empty if there is none.

    Raises:
        ValueError: if `model` is no Keras layer.

    Example:
    >>> for ffn in find_ffns(model):
    ...     print(ffn.name, ffn.width, "of", ffn.hidden_dim)
    """
    if not isinstance(model, keras.layers.Layer):
        raise ValueError(
            f"`model` must be a Keras model or layer. Received: {type(model).__name__}."
        )
    layers = []
    for layer in _walk(model):
        if isinstance(layer, PrunableGatedFFN) and layer not in layers:
            layers.append(layer)
    paths = [layer.path or layer.name for layer in layers]
    names = [
        path if paths.count(path) == 1 else f"{path}_{paths[:i].count(path)}"
        for i, path in enumerate(paths)
    ]
    return [FFN(n, layer, layer.state) for n, layer in zip(names, layers, strict=True)]


def _walk(layer):
    yield layer
    for sublayer in layer._layers:
        yield from _walk(sublayer)
