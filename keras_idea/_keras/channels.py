"""What layers of convolutional networks know of the channels that they have.

Seen with Keras 3.15.1.
"""

import contextlib
import copy
import inspect
from collections.abc import Iterable
from typing import Any

import keras
from keras import layers

from keras_idea._keras.layers import all_layers, stored_kernel
from keras_idea._keras.models import Functional, renew_shapes
from keras_idea._keras.symbolic import Recording
from keras_idea._keras.variables import as_never_made, without_values

CONVOLUTIONS = (layers.Conv1D, layers.Conv2D, layers.Conv3D)
TRANSPOSED = (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose)
DEPTHWISE = (layers.DepthwiseConv1D, layers.DepthwiseConv2D)
SEPARABLE = (layers.SeparableConv1D, layers.SeparableConv2D)
_NORMS = (
    layers.BatchNormalization,
    layers.GroupNormalization,
    layers.LayerNormalization,
    layers.RMSNormalization,
)
#: Layers with kernels that slide over places.
SLIDING = (*CONVOLUTIONS, *TRANSPOSED, *DEPTHWISE, *SEPARABLE)


def is_stock_layer(layer: Any) -> bool:
    """Whether a layer is one of `keras.layers`, not of `keras.applications`."""
    return type(layer).__module__.startswith("keras.src.layers")


def dense_of(layer: Any) -> Any:
    """The Dense layer that a layer is, or calls at every place; else None."""
    if type(layer) is layers.TimeDistributed and layer.built:
        layer = layer.layer
    stock = getattr(type(layer), "_stock_class", type(layer))
    for kind in (layers.Dense, layers.EinsumDense):
        if isinstance(layer, kind) and stock.call is kind.call:
            return layer
    return None


def channel_axis(layer: Any, tensor: keras.KerasTensor) -> int:
    """The axis of the channels of what a layer is called on."""
    first = getattr(layer, "data_format", None) == "channels_first"
    return 1 if first else len(tensor.shape) - 1


def adds_bias_to_width(layer: Any, tensor: keras.KerasTensor) -> bool:
    """Whether Keras adds a bias along the width once there are as many channels.

    `tensor`: what a convolution makes. On TensorFlow `keras.ops.add` takes one number
    for each channel as a bias, and asks the last axis first.
    """
    channels = tensor.shape[1]
    return (
        keras.backend.backend() == "tensorflow"
        and layer.data_format == "channels_first"
        and layer.use_bias
        and channels >= tensor.shape[-1] > 1
    )


def tell(layer: Any) -> None:
    """Has a layer say which shapes its variables have now."""
    read = _set_sizes(layer)
    if read and layer._build_shapes_dict:  # a file of the model tells them
        layer._build_shapes_dict = {
            name: _with(shape, read) for name, shape in layer._build_shapes_dict.items()
        }
    if read and takes_sizes(layer):
        _set_spec(layer, read)


def _with(shape: Any, sizes: dict[int, int]) -> tuple[Any, ...]:
    resized = list(shape)
    for axis, size in sizes.items():
        resized[axis] = size
    return tuple(resized)


def _set_sizes(layer: Any) -> dict[int, int]:
    """Sets a layer's own numbers; returns axes of its input -> the sizes it reads."""
    kind = type(layer)
    axis = 1 if getattr(layer, "data_format", None) == "channels_first" else -1
    if kind in SLIDING:
        kernel = stored_kernel(layer)
        rows, made = (-1, -2) if kind in TRANSPOSED else (-2, -1)
        size, groups = kernel.shape[rows], getattr(layer, "groups", 1)
        if groups > 1 and size == 1:  # each channel by itself
            layer.groups = groups = groups * kernel.shape[made] // layer.filters
        if kind not in DEPTHWISE:
            layer.filters = getattr(layer, "pointwise_kernel", kernel).shape[made]
        return {axis: size * groups}
    if isinstance(layer, layers.Dense):
        size, layer.units = stored_kernel(layer).shape
        return {-1: size}
    if isinstance(layer, layers.EinsumDense):
        return _set_einsum_sizes(layer)
    if kind is layers.TimeDistributed and isinstance(layer.layer, layers.Dense):
        return {-1: stored_kernel(layer.layer).shape[0]}
    if isinstance(layer, layers.Embedding):
        layer.output_dim = layer.variables[0].shape[-1]
    if kind in _NORMS and layer.variables and isinstance(layer.axis, int):
        (size,) = layer.variables[0].shape
        if kind is layers.GroupNormalization:
            (before,) = layer.input_spec.axes.values()
            layer.groups = layer.groups * size // before
        return {layer.axis: size}
    if kind is layers.PReLU:
        return {place: n for place, n in enumerate(layer.alpha.shape, 1) if n > 1}
    return {}


def _set_einsum_sizes(layer: Any) -> dict[int, int]:
    given, made = layer.equation.replace(" ", "").split("->")
    x, k = given.split(",")
    shape, read = list(layer.partial_output_shape), dict[int, int]()
    for letter, size in zip(k, stored_kernel(layer).shape, strict=True):
        if letter not in x:
            shape[made.index(letter) - len(made)] = size
        elif letter not in made:
            read[x.index(letter) - len(x)] = size
    layer.partial_output_shape = tuple(shape)
    return read


def tell_size(layer: Any, axis: int, size: int) -> None:
    """Has a Reshape make, or another layer take, another size along an axis.

    The other one is an input of a nested model, or a layer that says in an `InputSpec`
    what it takes. `axis` counts from the last: -1.
    """
    if isinstance(layer, layers.Reshape):
        shape = list(layer.target_shape)
        if shape[axis] != -1:
            shape[axis] = size
            layer.target_shape = tuple(shape)
    elif not isinstance(layer, layers.Layer):  # the operation, in a graph
        shape = list(layer.newshape)
        if shape[axis] != -1:
            shape[axis] = size
            layer.newshape = tuple(shape)
            layer._auto_config = type(layer._auto_config)(newshape=layer.newshape)
    elif isinstance(layer, layers.InputLayer):
        shape = list(layer._batch_shape)
        shape[axis] = size
        layer._batch_shape = tuple(shape)
        layer._input_tensor._shape = tuple(shape)
    else:
        _set_spec(layer, {axis: size, axis + (layer.input_spec.ndim or 0): size})


def takes_sizes(layer: Any) -> bool:
    """Returns whether a layer holds an `InputSpec` of the sizes that it takes."""
    spec = vars(layer).get("_input_spec")
    return isinstance(spec, keras.layers.InputSpec) and bool(spec.axes or spec.shape)


def makes_its_spec(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer's constructor makes its `InputSpec`, before `build`."""
    # It may raise, draw random numbers, or name layers.
    with contextlib.suppress(Exception), as_never_made(), without_values():
        return takes_sizes(type(layer).from_config(layer.get_config()))
    return False


def _set_spec(layer: Any, sizes: dict[int, int]) -> None:
    spec = copy.copy(layer.input_spec)
    spec.axes = {axis: sizes.get(axis, size) for axis, size in spec.axes.items()}
    if spec.shape is not None:
        spec.shape = _with(spec.shape, sizes)
    layer.input_spec = spec


def own_reshape(operation: Any) -> Any:
    """An operation, which has no state; a copy of one that `tell_size` may change."""
    is_layer = isinstance(operation, layers.Layer)  # a layer may be called Reshape too
    if is_layer or type(operation).__name__ != "Reshape":
        return operation
    return type(operation)(operation.newshape, name=operation.name)


def input_layers(model: Any) -> list[keras.layers.Layer]:
    """The input layers of a functional model or `Sequential`, in their order."""
    graph = getattr(model, "_functional", model)
    if not isinstance(graph, Functional):
        return []
    return [tensor._keras_history.operation for tensor in graph.inputs]


def tell_shapes(model: keras.layers.Layer, recording: Recording) -> None:
    """Has layers, and graphs, know what they are called on now: files hold it."""
    returned: dict[Any, list[keras.KerasTensor]] = {}
    for call in recording.composites:
        returned.setdefault(call.operation, []).extend(call.outputs)
    for call in [*recording.calls, *reversed(recording.composites)]:
        layer = call.operation
        shapes = getattr(layer, "_build_shapes_dict", None)
        if isinstance(layer, keras.layers.Layer) and shapes:
            layer._build_shapes_dict = _renewed(layer, dict(shapes), *call.given)
    # A nested model's graph first: the graph around it asks it.
    for part in reversed(all_layers(model)):
        renew_shapes(part, returned)


def _renewed(
    layer: Any, shapes: dict[str, Any], args: Iterable[Any], named: dict[str, Any]
) -> dict[str, Any]:
    signature = inspect.signature(layer.call)
    # A model hands on `training` also to layers that do not take it.
    named = {name: value for name, value in named.items() if name != "training"}
    try:
        given = signature.bind(*args, **named).arguments
    except TypeError:  # a call of another signature
        return shapes
    values = list(given.values())
    for name, shape in shapes.items():
        value = (
            values[0] if len(shapes) == 1 else given.get(name.removesuffix("_shape"))
        )
        if value is not None:
            shapes[name] = _resized(shape, value)
    return shapes


def _resized(shape: Any, tensors: Any) -> Any:
    """A shape, or several, with the sizes of tensors where they were known."""
    several, given = isinstance(shape, (list, tuple)), getattr(tensors, "shape", ())
    if several and shape and len(given) == len(shape):
        return tuple(old and new for old, new in zip(shape, given, strict=True))
    if several and isinstance(tensors, (list, tuple)):
        pairs = zip(shape, tensors, strict=False)
        return type(shape)(_resized(*pair) for pair in pairs)
    if isinstance(shape, dict) and isinstance(tensors, dict):
        return {name: _resized(shape[name], tensors.get(name)) for name in shape}
    return shape
