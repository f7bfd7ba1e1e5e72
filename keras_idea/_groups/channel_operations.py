"""What operations, and layers without weights, do to the atoms of what they are given.

A rule returns the atoms of the (only) output, a list of those of several, None if it
mixes or reads them, or a reason in words.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import layers

from keras_idea._groups.atoms import Atoms, at_axis
from keras_idea._keras.symbolic import Call

Made: TypeAlias = np.ndarray | list[np.ndarray] | str | None
Rule: TypeAlias = Callable[[Atoms, Any, Call], Made]

#: Operations on each number alone, or on numbers of one place and channel. None makes
#: something infinite of zeros, which a weight of zero would not take away.
_ON_EACH = frozenset(
    """Absolute Add Cast Celu Clip ConvertToTensor Divide Elu Erf Exp Expm1 Gelu
    HardShrink HardSigmoid HardSilu HardTanh LeakyRelu Log1p LogSigmoid Maximum Minimum
    Multiply Negative Relu Relu6 Selu Sigmoid Silu SoftShrink Softplus Softsign
    Square Subtract Tanh TanhShrink TrueDivide""".split()
)
_SPATIAL = frozenset("AveragePool MaxPool Resize".split())
_REDUCTIONS = frozenset("Mean Sum Max Min Amax Amin Any All Var".split())


def channel_axis(layer: Any, tensor: keras.KerasTensor) -> int:
    """The axis of the channels of what a layer is called on."""
    first = getattr(layer, "data_format", None) == "channels_first"
    return 1 if first else len(tensor.shape) - 1


def each(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Numbers combined place by place, with broadcasting; weights of each unit too."""
    rank = len(call.outputs[0].shape)
    found: list[tuple[np.ndarray, tuple[int, ...]]] = []
    is_layer = isinstance(operation, layers.Layer)
    held = [] if is_layer else list(vars(operation).values())
    divides = type(operation).__name__ in ("Divide", "TrueDivide")
    for given in [*call.arguments, *held]:
        part = _part(atoms, operation, given)
        if isinstance(part, str):
            return part
        if part is not None:
            if divides and part.size > 1 and given is call.arguments[-1]:
                return "something is divided by it"
            ahead = (1,) * (rank - part.ndim)
            found.append((part.reshape(ahead + part.shape), ahead + tuple(given.shape)))
    first = max((part for part, _ in found), key=lambda part: part.size)
    along = [axis for axis in range(rank) if first.shape[axis] > 1]
    for other, shape in found:
        # One number for all channels, as of a spatial attention, is like a scalar.
        if other is not first and not (along and all(shape[a] == 1 for a in along)):
            atoms.join(first, other)
    return first


def _part(atoms: Atoms, operation: Any, given: Any) -> np.ndarray | str | None:
    """The atoms of one argument; None of a number for all; or why it is refused."""
    if isinstance(given, keras.KerasTensor):
        return atoms.of_tensor[id(given)]
    shape = tuple(getattr(given, "shape", ()))
    if math.prod(shape) <= 1 or not hasattr(given, "dtype"):
        return None
    if not isinstance(given, keras.Variable):
        why = "a constant has a number of its own for each"
        return atoms.new(1, why).reshape((1,) * len(shape))
    wide = [axis for axis, size in enumerate(shape) if size > 1]
    if len(wide) > 1:
        return f"{type(operation).__name__} has a variable of several axes"
    along = atoms.along_variable(given, wide[0], "own", None)
    return at_axis(along, wide[0], len(shape))


def dropped(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Dropout and its like."""
    shape = getattr(layer, "noise_shape", None)
    if shape is not None:  # of ones where a sample is dropped whole
        given = atoms.of_tensor[id(call.inputs[0])]
        sizes = zip(shape, given.shape, strict=True)
        if any(size not in (1, None) for size, varies in sizes if varies > 1):
            return f"'{layer.name}' has a noise_shape with the number of channels"
    return each(atoms, layer, call)


def rescaled(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Rescaling by two numbers, or by one for each channel, which stays."""
    if np.size(layer.scale) > 1 or np.size(layer.offset) > 1:
        return None
    return each(atoms, layer, call)


def spatial(atoms: Atoms, layer: Any, call: Call) -> Made:
    """What moves or joins places, and no channels."""
    given = call.inputs[0]
    axis = channel_axis(layer, given)
    along = atoms.along(given, axis, f"'{layer.name}' joins it")
    return at_axis(along, axis, len(given.shape))


def pooled(atoms: Atoms, layer: Any, call: Call) -> Made:
    """All places pooled to one."""
    given, made = call.inputs[0], call.outputs[0]
    axis = channel_axis(layer, given)
    along = atoms.along(given, axis, f"'{layer.name}' joins it")
    return at_axis(along, axis if layer.keepdims else 1, len(made.shape))


def concatenated(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Along one axis; the channels of what is joined along another must be the same."""
    rank = len(call.outputs[0].shape)
    axis = operation.axis % rank
    parts = [atoms.of_tensor[id(tensor)] for tensor in call.inputs]
    if axis == 0:
        return None
    if all(map(atoms.are_fixed, parts)):
        return parts[0].ravel()[:1].reshape((1,) * rank)
    if all(part.shape[axis] == 1 for part in parts):
        first = max(parts, key=lambda part: part.size)
        if first.size > 1:
            for part in parts:
                atoms.join(first, part)
            return first
    why = "concatenated along another axis"
    along = [atoms.along(tensor, axis, why) for tensor in call.inputs]
    return at_axis(np.concatenate(along), axis, rank)


def permuted(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Axes in another order."""
    return atoms.of_tensor[id(call.inputs[0])].transpose(0, *layer.dims)


def reshaped(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Flatten and Reshape: entries in the same order under another shape."""
    given, made = call.inputs[0], call.outputs[0]
    before = atoms.of_tensor[id(given)]
    if atoms.are_fixed(before):
        return before.reshape(-1)[:1].reshape((1,) * len(made.shape))
    if getattr(layer, "data_format", "") == "channels_first":  # Flatten moves them last
        before = np.moveaxis(before, 1, -1)
        sizes = (*given.shape[2:], given.shape[1])
    else:
        sizes = tuple(given.shape[1:])
    after = np.broadcast_to(before, (1, *sizes)).reshape(1, *made.shape[1:])
    for axis in range(1, after.ndim):  # of size 1 where they do not vary
        if (after == after.take([0], axis)).all():
            after = after.take([0], axis)
    if sum(size > 1 for size in after.shape) > 1:
        if after.shape[-1] == 1:
            return f"'{layer.name}' spreads it over several axes"
        # Units that become channels at several places go together.
        first = after.reshape(-1, after.shape[-1])[:1]
        atoms.join(after, first)
        after = at_axis(first, after.ndim - 1, after.ndim)
    return after


def by_name(atoms: Atoms, operation: Any, call: Call) -> Made:
    """What an operation that is no layer does."""
    name = type(operation).__name__
    given = [atoms.of_tensor[id(tensor)] for tensor in call.inputs]
    if name in _ON_EACH:
        return each(atoms, operation, call)
    if name in _SPATIAL:
        return spatial(atoms, operation, call)
    if name in _REDUCTIONS:
        return _reduced(operation, call, given[0])
    if name == "Concatenate":
        return concatenated(atoms, operation, call)
    if name == "ExpandDims":
        return np.expand_dims(given[0], operation.axis)
    if name == "Squeeze" and operation.axis is not None:
        return given[0].squeeze(operation.axis)
    if name == "Transpose" and operation.axes is not None:
        return given[0].transpose(operation.axes)
    if name == "Pad":
        padded = [bool(np.any(width)) for width in operation.pad_width]
        if not any(
            wide and size > 1
            for wide, size in zip(padded, given[0].shape, strict=False)
        ):
            return given[0]
    if given and all(map(atoms.are_fixed, given)):
        for held in call.arguments:
            if isinstance(held, keras.Variable):  # of a convolution's, for one
                atoms.settle_variable(held, f"the operation {name} reads it")
        why = atoms.reasons[given[0].ravel()[0]]
        return [atoms.constant(tensor, why or name) for tensor in call.outputs]
    if name == "Reshape":
        return f"code holds its number, in a Reshape to {operation.newshape}"
    return None  # Split, GetItem, Matmul ...


def _reduced(operation: Any, call: Call, given: np.ndarray) -> Made:
    rank, axes = len(call.inputs[0].shape), operation.axis
    axes = range(rank) if axes is None else np.atleast_1d(axes)
    axes = tuple(int(axis) % rank for axis in axes)
    if any(given.shape[axis] > 1 for axis in axes):
        return f"{type(operation).__name__} reduces it"
    return given if operation.keepdims else given.squeeze(axes)
