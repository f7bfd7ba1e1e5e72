"""What Keras's layers do to the atoms of what they are called on."""

import math
from typing import Any

import keras
import numpy as np
from keras import layers

from keras_idea._groups import channel_operations as made_by
from keras_idea._groups.atoms import Atoms, Role, at_axis
from keras_idea._groups.channel_operations import Made, Rule, channel_axis
from keras_idea._groups.dense_reasons import why_not_plain
from keras_idea._groups.follow import is_dense
from keras_idea._groups.on_each import name_of
from keras_idea._keras.channels import (
    CONVOLUTIONS,
    DEPTHWISE,
    SEPARABLE,
    SLIDING,
    TRANSPOSED,
    adds_bias_to_width,
    kernel_of,
)
from keras_idea._keras.symbolic import Call
from keras_idea.functional.by_numbers import why_not_each_number

_OTHER_AXIS = "its channels lie along another axis"
_STATISTICS = ("moving_mean", "moving_variance")
_OF_ONE_NUMBER = (layers.ELU, layers.LeakyReLU, layers.ReLU)


def _activated(
    atoms: Atoms, activation: Any, made: np.ndarray, tensor: keras.KerasTensor
) -> Made:
    """What an activation makes of atoms; settles them if it mixes them."""
    if type(activation) in _OF_ONE_NUMBER:
        return made
    name = name_of(activation)
    if isinstance(activation, layers.Layer):
        why: str | None = "is a layer that is not known"
    else:
        why = why_not_each_number(activation, (2, max(tensor.shape[-1], 2)))
        if name == "softmax" and made.shape[-1] == 1:
            why = None  # over places, or over one channel
    if why is None:
        return made
    reason = f"its activation {name} {why}"
    atoms.settle(made, reason)
    return atoms.constant(tensor, reason)


def _output(
    atoms: Atoms, layer: Any, kernel: keras.Variable, axis: int, call: Call, at: int
) -> Made:
    """The atoms of what a kernel and its bias make, along axis `at` of the output."""
    made = atoms.along_variable(kernel, axis, "makes", layer)
    if getattr(layer, "bias", None) is not None:
        atoms.join(atoms.along_variable(layer.bias, 0, "own", layer), made)
    tensor = call.outputs[0]
    as_tensor = at_axis(made, at, len(tensor.shape))
    return _activated(atoms, layer.activation, as_tensor, tensor)


def _convolution(atoms: Atoms, layer: Any, call: Call) -> Made:
    (given,), kernel = call.inputs, kernel_of(layer)
    axis = channel_axis(layer, given)
    inputs = atoms.along(given, axis, _OTHER_AXIS)
    groups, width = layer.groups, kernel.shape[-2]
    if groups > 1 and width == 1:  # each channel by itself
        made = atoms.along_variable(kernel, -1, "makes", layer)
        atoms.join(np.repeat(inputs, layer.filters // groups), made)
    else:
        # The kernel has the rows of the first group: all groups lose the same ones.
        rows = atoms.along_variable(kernel, -2, "reads", layer)
        atoms.join(inputs.reshape(groups, width), rows)
        if groups > 1:
            made = atoms.along_variable(kernel, -1, "makes", layer)
            made = made.reshape(groups, -1)
            atoms.join(made, made[:1])
    return _output(atoms, layer, kernel, -1, call, axis)


def _transposed(atoms: Atoms, layer: Any, call: Call) -> Made:
    (given,), kernel = call.inputs, layer.kernel
    axis = channel_axis(layer, given)
    inputs = atoms.along(given, axis, _OTHER_AXIS)
    atoms.join(inputs, atoms.along_variable(kernel, -1, "reads", layer))
    return _output(atoms, layer, kernel, -2, call, axis)


def _by_depth(atoms: Atoms, layer: Any, kernel: Any, call: Call) -> np.ndarray:
    given = call.inputs[0]
    inputs = atoms.along(given, channel_axis(layer, given), _OTHER_AXIS)
    own = atoms.along_variable(kernel, -2, "each", layer)
    atoms.join(inputs, own)
    return np.repeat(own, layer.depth_multiplier)


def _depthwise(atoms: Atoms, layer: Any, call: Call) -> Made:
    made = _by_depth(atoms, layer, layer.kernel, call)
    if layer.bias is not None:
        atoms.join(atoms.along_variable(layer.bias, 0, "own", layer), made)
    tensor = call.outputs[0]
    made = at_axis(made, channel_axis(layer, tensor), len(tensor.shape))
    return _activated(atoms, layer.activation, made, tensor)


def _separable(atoms: Atoms, layer: Any, call: Call) -> Made:
    between = _by_depth(atoms, layer, layer.depthwise_kernel, call)
    point = layer.pointwise_kernel
    atoms.join(between, atoms.along_variable(point, -2, "reads", layer))
    return _output(atoms, layer, point, -1, call, channel_axis(layer, call.inputs[0]))


def _dense(atoms: Atoms, layer: Any, call: Call) -> Made:
    given, kernel = call.inputs[0], kernel_of(layer)
    inputs = atoms.along(given, -1, "its units lie along another axis")
    atoms.join(inputs, atoms.along_variable(kernel, 0, "reads", layer))
    return _output(atoms, layer, kernel, 1, call, len(call.outputs[0].shape) - 1)


def _own_weights(atoms: Atoms, layer: Any, along: np.ndarray) -> None:
    for variable in layer.variables:
        role: Role = "statistic" if variable.name in _STATISTICS else "own"
        atoms.join(atoms.along_variable(variable, 0, role, layer), along)


def _batch_normalization(atoms: Atoms, layer: Any, call: Call) -> Made:
    given = call.inputs[0]
    if not layer.epsilon:
        return f"'{layer.name}' has epsilon=0, which makes NaN of a pruned channel"
    if not isinstance(layer.axis, int):
        return None
    along = atoms.along(given, layer.axis, f"'{layer.name}' normalizes over it")
    _own_weights(atoms, layer, along)
    return at_axis(along, layer.axis, len(given.shape))


def _group_normalization(atoms: Atoms, layer: Any, call: Call) -> Made:
    given = call.inputs[0]
    if not isinstance(layer.axis, int) or layer.groups == 1:
        return f"'{layer.name}' normalizes over all channels together"
    if not layer.variables:
        return f"'{layer.name}' has no weights that tell its number of channels"
    along = atoms.along(given, layer.axis, f"'{layer.name}' normalizes over it")
    blocks = along.reshape(layer.groups, -1)  # a group of its channels goes whole
    atoms.join(blocks, blocks[:, :1])
    _own_weights(atoms, layer, along)
    return at_axis(along, layer.axis, len(given.shape))


def _layer_normalization(atoms: Atoms, layer: Any, call: Call) -> Made:
    given = atoms.of_tensor[id(call.inputs[0])]
    axes = np.atleast_1d(layer.axis)
    over = any(given.shape[axis] > 1 for axis in axes)
    return None if over or not atoms.are_fixed(given) else given


def _prelu(atoms: Atoms, layer: Any, call: Call) -> Made:
    given, alpha = call.inputs[0], layer.alpha
    along = atoms.of_tensor[id(given)]
    for axis in range(1, len(given.shape)):
        if along.shape[axis] > 1 and alpha.shape[axis - 1] > 1:
            own = atoms.along_variable(alpha, axis - 1, "own", layer)
            atoms.join(own, along.reshape(-1))
    return along


def _activation(atoms: Atoms, layer: Any, call: Call) -> Made:
    given = atoms.of_tensor[id(call.inputs[0])]
    return _activated(atoms, layer.activation, given, call.outputs[0])


def _all(names: str) -> list[type]:
    found = [
        getattr(layers, f"{name}{n}D", None)
        for name in names.split()
        for n in (1, 2, 3)
    ]
    return [layer for layer in found if layer is not None]


_MERGES = "Add Average Maximum Minimum Multiply Subtract"
_DROPOUTS = "AlphaDropout Dropout GaussianDropout GaussianNoise"
_OTHERS = "ActivityRegularization ELU Identity LeakyReLU ReLU"
RULES: dict[type, Rule] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(TRANSPOSED, _transposed),
    **dict.fromkeys(DEPTHWISE, _depthwise),
    **dict.fromkeys(SEPARABLE, _separable),
    layers.Dense: _dense,
    layers.BatchNormalization: _batch_normalization,
    layers.GroupNormalization: _group_normalization,
    layers.LayerNormalization: _layer_normalization,
    layers.PReLU: _prelu,
    layers.Activation: _activation,
    **{getattr(layers, n): made_by.each for n in f"{_MERGES} {_OTHERS}".split()},
    **{getattr(layers, name): made_by.dropped for name in _DROPOUTS.split()},
    **dict.fromkeys(_all("SpatialDropout"), made_by.dropped),
    **dict.fromkeys(
        _all(
            "MaxPooling AveragePooling AdaptiveAveragePooling AdaptiveMaxPooling "
            "ZeroPadding Cropping UpSampling"
        ),
        made_by.spatial,
    ),
    layers.Resizing: made_by.spatial,
    **dict.fromkeys(_all("GlobalMaxPooling GlobalAveragePooling"), made_by.pooled),
    layers.Rescaling: made_by.rescaled,
    layers.Flatten: made_by.reshaped,
    layers.Reshape: made_by.reshaped,
    layers.Permute: made_by.permuted,
    layers.Concatenate: made_by.concatenated,
}


def why_not_followed(call: Call) -> str | None:
    """Why the numbers that a layer with a rule gives are not those of its rule."""
    layer: Any = call.operation
    if type(layer) in SLIDING and adds_bias_to_width(layer, call.outputs[0]):
        return (
            f"'{layer.name}' has channels_first and a bias, and Keras on TensorFlow "
            "adds it to the width if that is the number of channels"
        )
    regularizer = getattr(layer, "activity_regularizer", None)
    if regularizer is not None or type(layer) is layers.ActivityRegularization:
        return f"an activity regularizer of '{layer.name}' reads it"
    if hasattr(layer, "lora_enabled"):
        return why_not_plain(layer)
    return None


def uses(call: Call) -> dict[int, int]:
    """How often each kernel of a layer is used for a sample, by its `id`."""
    layer: Any = call.operation
    tensor = call.inputs[0] if type(layer) in TRANSPOSED else call.outputs[0]
    axis = len(tensor.shape) - 1 if is_dense(layer) else channel_axis(layer, tensor)
    places = math.prod(tensor.shape[1:]) // tensor.shape[axis]
    if type(layer) in SEPARABLE:
        return {id(layer.depthwise_kernel): places, id(layer.pointwise_kernel): places}
    return {id(kernel_of(layer)): places}
