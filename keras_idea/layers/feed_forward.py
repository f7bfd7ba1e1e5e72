"""The arithmetic of an FFN with a gate or without, and what all of them are asked."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.layers.cut import Cut
from keras_idea.typing import Tensor
from keras_idea.validation import plural


def feed_forward(
    inputs: Tensor,
    kernels: Sequence[Tensor],
    biases: Sequence[Tensor] | None,
    activation: Callable[[Tensor], Tensor],
    hidden: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""`down^T (activation(up^T x) * (gate^T x))`, without the factor if ungated.

    Args:
        inputs: tensor `(..., input_dim)`.
        kernels: up `(input_dim, hidden_dim)`, the activated matrix; of a gated FFN
            gate, the linear one, of the same shape; down `(hidden_dim, input_dim)`.
        biases: None, or as many biases.
        activation: function of a tensor.
        hidden: function of the hidden activations `(..., hidden_dim)`, which down
            then multiplies; None: the identity.

    Returns:
        Tensor of the shape of `inputs`.
    """
    # The tokens as the rows of one matrix: XLA on a CPU computes the gradient of a
    # product with a tensor of rank 3 through transposed copies, three times slower.
    axes = ops.shape(inputs)[:-1]
    rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
    *entrances, down = kernels
    branches = [ops.matmul(rows, kernel) for kernel in entrances]
    if biases is not None:
        branches = [x + bias for x, bias in zip(branches, biases, strict=False)]
    activations = activation(branches[0])
    for linear in branches[1:]:
        activations = activations * linear
    if hidden is not None:
        # It sees which tokens are one sample's.
        shape = activations.shape
        activations = hidden(ops.reshape(activations, (*axes, shape[-1])))
        activations = ops.reshape(activations, (-1, shape[-1]))
    outputs = ops.matmul(activations, down)
    if biases is not None:
        outputs = outputs + biases[-1]
    return ops.reshape(outputs, (*axes, inputs.shape[-1]))


def ffn_kernels(layer: keras.layers.Layer) -> list[keras.Variable]:
    """The kernels of a layer, down last."""
    return [getattr(layer, f"{name}_kernel") for name in layer.matrices]


def ffn_biases(layer: keras.layers.Layer) -> list[keras.Variable] | None:
    """The biases of a layer, down's last; or None."""
    if not layer.use_bias:
        return None
    return [getattr(layer, f"{name}_bias") for name in layer.matrices]


def cuts_of(
    kernels: Sequence[keras.Variable], biases: Sequence[keras.Variable | None]
) -> list[Cut]:
    """How the neurons lie in the weights of an FFN, the kernels first.

    Args:
        kernels: up, gate (if there is one) and down.
        biases: as many, or none; None where a layer has none. Down's has no neurons.
    """
    *entrances, down = kernels
    inner = [bias for bias in biases[:-1] if bias is not None]
    return [
        *(Cut(kernel, 1) for kernel in entrances),
        Cut(down, 0),
        *(Cut(bias, 0, is_bias=True) for bias in inner),
    ]


def ffn_cuts(layer: keras.layers.Layer) -> list[Cut]:
    """The cuts of an FFN of this package."""
    return cuts_of(ffn_kernels(layer), ffn_biases(layer) or ())


def check_loaded_width(name: str, hidden_dim: int, found: int) -> None:
    """Refuses a file of another width, in words that say what to use.

    Args:
        name: str, the layer's path.
        hidden_dim: int, neurons that the layer has.
        found: int, neurons of that layer in the file.

    Raises:
        ValueError: if they differ.
    """
    if hidden_dim != found:
        raise ArgumentError(
            f"The file holds {plural(found, 'neuron')} of '{name}', which has "
            f"{hidden_dim}: it was saved before or after the model became narrower. "
            "Load the model whole (keras.saving.load_model), or restore a run by "
            "keras_idea.Checkpoint(folder).restore(model), which narrows the model; or "
            f"make the model with {plural(found, 'neuron')}. If this is a whole model: "
            "a block of yours makes the FFN with the width of its own config, which "
            "must follow (docs/good_to_know.md)."
        )


def check_loaded_ffn(layer: keras.layers.Layer, store: Mapping[str, Any]) -> None:
    """Refuses a file that holds nothing of a layer, or another width of it.

    Args:
        layer: a built FFN of this package.
        store: what Keras gives `load_own_variables`.

    Raises:
        ValueError: saying what the file is of.
    """
    if not store.keys():
        name = type(layer).__name__
        raise ArgumentError(
            f"The file holds nothing of '{layer.path}' at the place where Keras looks, "
            "which is found by the class of the layer. So it is of a model without "
            f"this {name}: load it into a model of the same layers (GatedFFN, "
            "PrunableGatedFFN, UngatedFFN or PrunableFFN), and use keras_idea.compact "
            "to go from a prunable one to a plain one. Or an FFN of another width in "
            "the file, named in an error above, has made Keras try again."
        )
    check_loaded_width(layer.path, layer.hidden_dim, store["0"].shape[1])


def used_neurons(cuts: Sequence[Cut]) -> Tensor:
    """The mask of the neurons that have a weight other than zero.

    Where all are zero, as in an FFN that begins with zeros, each counts as used.

    Args:
        cuts: list of `Cut`, of one FFN.

    Returns:
        float32 tensor in {0, 1}, `(F,)`; of E experts `(E, F)`.
    """
    used = functools.reduce(ops.logical_or, (cut.used() for cut in cuts))
    unknown = ops.logical_not(ops.any(used, axis=-1, keepdims=True))
    return ops.cast(ops.logical_or(used, unknown), "float32")
