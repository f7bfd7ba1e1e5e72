"""What Keras's layers, and some of KerasHub's, do to the atoms of their inputs.

A row of `RULES`, or of `BY_NAME`, says it of a type of layer; whatever has no row is
looked into, or taken for an operation on each number alone if numbers say so.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import layers

from keras_idea._graph import moves
from keras_idea._graph import operations as made_by
from keras_idea._graph.atoms import Atoms, Made, Rule, at_axis
from keras_idea._groups.cut import Role
from keras_idea._keras.channels import (
    DEPTHWISE,
    SEPARABLE,
    SLIDING,
    TRANSPOSED,
    adds_bias_to_width,
    channel_axis,
    dense_of,
    is_stock_layer,
)
from keras_idea._keras.layers import stored_kernel, sublayers, walk
from keras_idea._keras.symbolic import Call
from keras_idea._layers.ffn import FFNLayer
from keras_idea.functional.by_numbers import PrunedNumbers, why_not_each_number

_OTHER_AXIS = "its units lie along another axis"
_STATISTICS = ("moving_mean", "moving_variance")
_OF_ONE_NUMBER = (layers.ELU, layers.LeakyReLU, layers.ReLU)
#: Attention layers of Keras that are looked into.
ATTENTION = (layers.MultiHeadAttention, layers.GroupQueryAttention)


def slides(layer: object) -> bool:
    """Returns whether a layer is a convolution of a kind that is known."""
    return type(layer) in SLIDING


def name_of(function: Any) -> str:
    """Returns the name of a function, of a partial one that of what it calls."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def _activated(
    atoms: Atoms, activation: Any, made: np.ndarray, tensor: keras.KerasTensor
) -> Made:
    """Follows an activation; settles what it mixes."""
    name, why = name_of(activation), None
    seeded = isinstance(activation, layers.Layer) and (
        activation.variables or type(activation) in RULES
    )
    if seeded and type(activation) not in _OF_ONE_NUMBER:
        why = "has weights or seeds of its own"
    elif not seeded:
        why = why_not_each_number(activation, (2, max(tensor.shape[-1], 2)))
        if why is None and not hasattr(keras.activations, name):
            why = PrunedNumbers().make(activation, [tensor], [tensor])
        if name == "softmax" and made.shape[-1] == 1:
            why = None  # over places, or over one channel
    if why is None:
        return made
    reason = f"its activation {name} {why}"
    atoms.settle(made, reason)
    return atoms.constant(tensor, reason)


def _sliding(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows convolutions: by depth, of all channels, or one after the other."""
    given, tensor = call.inputs[0], call.outputs[0]
    axis = channel_axis(layer, given)
    made, kernel = atoms.along(given, axis, _OTHER_AXIS), stored_kernel(layer)
    if type(layer) in (*DEPTHWISE, *SEPARABLE):
        own = atoms.along_variable(kernel, -2, "each", layer)
        atoms.join(made, own)
        made = np.repeat(own, layer.depth_multiplier)
        kernel = getattr(layer, "pointwise_kernel", None)
    if kernel is not None:
        entered, (read, new) = made, (-1, -2) if type(layer) in TRANSPOSED else (-2, -1)
        groups, width = getattr(layer, "groups", 1), kernel.shape[read]
        if groups > 1 and width == 1:  # each channel by itself
            made = atoms.along_variable(kernel, new, "makes", layer)
            atoms.join(np.repeat(entered, len(made) // groups), made)
        else:
            # The kernel has the rows of the first group: all groups lose the same ones.
            rows = atoms.along_variable(kernel, read, "reads", layer)
            atoms.join(entered.reshape(groups, width), rows)
            made = atoms.along_variable(kernel, new, "makes", layer)
            atoms.whole(made.reshape(groups, -1), 0)
    if layer.bias is not None:
        atoms.join(atoms.along_variable(layer.bias, 0, "own", layer), made)
    as_tensor = at_axis(made, axis, len(tensor.shape))
    return _activated(atoms, layer.activation, as_tensor, tensor)


def _dense(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows Dense and EinsumDense layers, also what calls one at every place."""
    dense, given, tensor = dense_of(layer), call.inputs[0], call.outputs[0]
    if dense is None:
        return None
    kernel = stored_kernel(dense)
    equation = getattr(dense, "equation", "...a,ab->...b")
    (x, k), made = made_by.letters_of(equation, [len(given.shape), len(kernel.shape)])
    letters = f"{x},{k}->{made}"
    array = made_by.kernel_product(atoms, atoms.of(given), letters, kernel, dense)
    if dense is not layer:
        for place in atoms.places.values():
            if place.variable is kernel and place.role == "reads":
                place.layers.append(layer)
    if not isinstance(array, np.ndarray):
        return array
    if dense.bias is not None:
        axes = getattr(dense, "bias_axes", None) or made[-1]
        order = [letter for letter in made if letter in axes]
        for axis, letter in enumerate(order):
            if array.shape[made.index(letter)] > 1:
                own = atoms.along_variable(dense.bias, axis, "own", dense)
                atoms.join(own, array.reshape(-1))
    return _activated(atoms, dense.activation, array, tensor)


def _norm(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows normalizations; units over which one normalizes are features."""
    given, array = call.inputs[0], atoms.of(call.inputs[0])
    axes = [int(a) % array.ndim for a in np.atleast_1d(getattr(layer, "axis", -1))]
    batch = type(layer) is layers.BatchNormalization
    groups = type(layer) is layers.GroupNormalization
    if batch and not layer.epsilon:
        return f"'{layer.name}' has epsilon=0, which makes NaN of a pruned channel"
    if groups and (len(axes) > 1 or layer.groups == 1):
        return f"'{layer.name}' normalizes over all channels together"
    if groups and not layer.variables:
        return f"'{layer.name}' has no weights that tell its number of channels"
    over = not (batch or groups)
    if over and all(array.shape[axis] == 1 for axis in axes):
        return array
    if len(axes) > 1 or any(len(v.shape) != 1 for v in layer.variables):
        return None
    along = atoms.along(given, axes[0], f"'{layer.name}' normalizes over it")
    if groups:
        atoms.whole(along.reshape(layer.groups, -1), 1)
    for variable in layer.variables:
        role: Role = "statistic" if variable.name in _STATISTICS else "own"
        atoms.join(atoms.along_variable(variable, 0, role, layer), along)
    if over:
        why = f"{type(layer).__name__} '{layer.name}' normalizes over it"
        atoms.normalized.append((along, why))
    return at_axis(along, axes[0], array.ndim)


def _activation(atoms: Atoms, layer: Any, call: Call) -> Made:
    given = atoms.of(call.inputs[0])
    return _activated(atoms, layer.activation, given, call.outputs[0])


def _embedding(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows embeddings, also where KerasHub reads logits with them."""
    table, tensor = stored_kernel(layer), call.outputs[0]
    args, named = call.given
    if named.get("reverse") or (len(args) > 1 and args[1] is True):
        along = atoms.along(call.inputs[0], -1, _OTHER_AXIS)
        axis = 1
        if not layer.tie_weights:
            table, axis = layer.reverse_embeddings, 0
        atoms.join(along, atoms.along_variable(table, axis, "reads", layer))
        return atoms.constant(tensor, "it is one of the vocabulary")
    along = atoms.along_variable(table, 1, "makes", layer)
    return at_axis(along, len(tensor.shape) - 1, len(tensor.shape))


def _turned(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows a rotation of positions: all features of a head go together.

    Or what makes the sines and cosines of positions.
    """
    if len(call.outputs) > 1:
        return [atoms.constant(tensor, "positions") for tensor in call.outputs]
    return atoms.whole(atoms.of(call.inputs[0]), -1)


def _dropped(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows Dropout and its like."""
    shape = getattr(layer, "noise_shape", None)
    if shape is not None:  # of ones where a sample is dropped whole
        sizes = zip(shape, atoms.of(call.inputs[0]).shape, strict=True)
        if any(size not in (1, None) for size, varies in sizes if varies > 1):
            return f"'{layer.name}' has a noise_shape with the number of channels"
    return made_by.each(atoms, layer, call)


def _all(names: str) -> list[type]:
    found = [
        getattr(layers, f"{name}{n}D", None)
        for name in names.split()
        for n in (1, 2, 3)
    ]
    return [layer for layer in found if layer is not None]


_MERGES = "Add Average Maximum Minimum Multiply Subtract"
_OTHERS = "ActivityRegularization ELU Identity LeakyReLU PReLU ReLU"
_DROPOUTS = "AlphaDropout Dropout GaussianDropout GaussianNoise"
_SPATIAL = """AdaptiveAveragePooling AdaptiveMaxPooling AveragePooling Cropping
    GlobalAveragePooling GlobalMaxPooling MaxPooling UpSampling ZeroPadding"""
RULES: dict[type, Rule] = {
    **dict.fromkeys(SLIDING, _sliding),
    layers.Embedding: _embedding,
    layers.BatchNormalization: _norm,
    layers.GroupNormalization: _norm,
    layers.LayerNormalization: _norm,
    layers.RMSNormalization: _norm,
    layers.Activation: _activation,
    layers.Softmax: made_by.across,
    **{getattr(layers, n): made_by.each for n in f"{_MERGES} {_OTHERS}".split()},
    **{getattr(layers, name): _dropped for name in _DROPOUTS.split()},
    **dict.fromkeys(_all("SpatialDropout"), _dropped),
    **dict.fromkeys(_all(_SPATIAL), made_by.spatial),
    layers.Resizing: made_by.spatial,
    layers.Flatten: moves.reshaped,
    layers.Reshape: moves.reshaped,
    layers.Permute: moves.by(lambda array, dims: array.transpose(0, *dims), "dims"),
    layers.Concatenate: moves.concatenated,
}
#: Layers of KerasHub, by the name of their class, or the end of it.
BY_NAME: dict[str, Rule] = {
    "PositionEmbedding": _embedding,
    "ReversibleEmbedding": _embedding,
    "RotaryEmbedding": _turned,
}


def rule_of(layer: Any) -> Rule | None:
    """Returns the rule of a layer; None: it has none."""
    if dense_of(layer) is not None:
        return _dense
    if type(layer) in RULES:
        return RULES[type(layer)]
    name = type(layer).__name__
    if name.endswith("RotaryEmbedding"):
        name = "RotaryEmbedding"
    if name in BY_NAME or is_stock_layer(layer):
        return BY_NAME.get(name)
    return _norm if _is_norm(layer) else None


def _is_norm(layer: Any) -> bool:
    """Returns whether a layer of somebody else's is a normalization by its look."""
    named = "norm" in type(layer).__name__.lower()
    return (
        named and not sublayers(layer) and all(len(v.shape) == 1 for v in layer.weights)
    )


def embeds(layer: Any) -> bool:
    """Returns whether a layer makes features of tokens or positions."""
    return isinstance(layer, layers.Embedding) or type(layer).__name__ in BY_NAME


def looked_into(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer is more than one operation: models, a user's layers."""
    if isinstance(layer, keras.Model):
        return True
    if rule_of(layer) is not None or isinstance(layer, FFNLayer):
        return False
    return not is_stock_layer(layer) or any(dense_of(part) for part in walk(layer))


def why_not_followed(call: Call) -> str | None:
    """Returns why a layer with a rule computes something else than its rule."""
    layer: Any = call.operation
    if type(layer) in SLIDING and adds_bias_to_width(layer, call.outputs[0]):
        return (
            f"'{layer.name}' has channels_first and a bias, and Keras on TensorFlow "
            "adds it to the width if that is the number of channels"
        )
    inner = dense_of(layer) or layer
    if getattr(inner, "lora_enabled", False):
        return f"'{inner.path}' has LoRA enabled"
    if hasattr(inner, "lora_enabled") and inner.quantization_mode is not None:
        return f"'{inner.path}' is quantized ({inner.quantization_mode})"
    return None


def uses(call: Call) -> dict[int, int]:
    """Returns how often each kernel of a layer is used for a sample, by its `id`."""
    layer: Any = call.operation
    tensor = call.inputs[0] if type(layer) in TRANSPOSED else call.outputs[0]
    dense = type(layer) is layers.Dense
    axis = len(tensor.shape) - 1 if dense else channel_axis(layer, tensor)
    places = math.prod(tensor.shape[1:]) // tensor.shape[axis]
    kernels = [stored_kernel(layer), getattr(layer, "pointwise_kernel", None)]
    return {id(kernel): places for kernel in kernels if kernel is not None}
