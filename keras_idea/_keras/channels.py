"""What layers of convolutional networks know of the channels that they have.

Seen with Keras 3.15.1.
"""

import inspect
from collections.abc import Iterable
from typing import Any

import keras
from keras import layers

from keras_idea._keras.layers import all_layers
from keras_idea._keras.models import Functional, renew_shapes
from keras_idea._keras.symbolic import Recording

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


def kernel_of(layer: Any) -> keras.Variable:
    """The variable behind a layer's (first) `kernel`, or its `embeddings`.

    These are computed, with LoRA and of a quantized layer.
    """
    names = "_kernel depthwise_kernel kernel _embeddings embeddings position_embeddings"
    held: keras.Variable = next(
        getattr(layer, name) for name in names.split() if hasattr(layer, name)
    )
    return held


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
    kind, read, axis = type(layer), None, -1
    if kind in CONVOLUTIONS:
        kernel = kernel_of(layer)
        if layer.groups > 1 and kernel.shape[-2] == 1:  # each channel by itself
            times = layer.filters // layer.groups
            layer.groups = kernel.shape[-1] // times
        layer.filters = kernel.shape[-1]
        read = kernel.shape[-2] * layer.groups
    elif kind in TRANSPOSED:
        layer.filters, read = layer.kernel.shape[-2], layer.kernel.shape[-1]
    elif kind in DEPTHWISE:
        read = layer.kernel.shape[-2]
    elif kind in SEPARABLE:
        layer.filters = layer.pointwise_kernel.shape[-1]
        read = layer.depthwise_kernel.shape[-2]
    elif isinstance(layer, layers.Dense):
        read, layer.units = kernel_of(layer).shape
    elif isinstance(layer, layers.EinsumDense):
        _tell_einsum(layer)
    elif kind is layers.TimeDistributed:
        inner = layer.layer
        read = kernel_of(inner).shape[0] if isinstance(inner, layers.Dense) else None
    elif isinstance(layer, layers.Embedding):
        layer.output_dim = layer.variables[0].shape[-1]
    elif kind in _NORMS and layer.variables:
        read, axis = layer.variables[0].shape[0], layer.axis
    elif kind is layers.PReLU:
        for place, size in enumerate(layer.alpha.shape, 1):
            if size > 1:
                _resize_built(layer, place, size)
    if kind is layers.GroupNormalization:
        (before,) = layer.input_spec.axes.values()
        layer.groups = layer.groups * read // before
    if read is not None and isinstance(axis, int):
        if getattr(layer, "data_format", None) == "channels_first":
            axis = 1
        _resize_built(layer, axis, read)
    _tell_input(layer, read)


def _tell_einsum(layer: Any) -> None:
    given, made = layer.equation.replace(" ", "").split("->")
    x, k = given.split(",")
    shape = list(layer.partial_output_shape)
    for letter, size in zip(k, kernel_of(layer).shape, strict=True):
        if letter not in x:
            shape[made.index(letter) - len(made)] = size
        elif letter not in made:
            _resize_built(layer, x.index(letter) - len(x), size)
    layer.partial_output_shape = tuple(shape)


def _resize_built(layer: Any, axis: int, size: int) -> None:
    """Changes the shape for which a layer was built: a file of the model tells it."""
    shapes = layer._build_shapes_dict or {}
    layer._build_shapes_dict = {
        name: _with(shape, axis, size) for name, shape in shapes.items()
    }


def _with(shape: Any, axis: int, size: int) -> tuple[Any, ...]:
    resized = list(shape)
    resized[axis] = size
    return tuple(resized)


def _tell_input(layer: Any, read: int | None) -> None:
    """Sets the sizes of the axes that a layer checks of its input."""
    spec = layer.input_spec
    if not isinstance(spec, keras.layers.InputSpec) or not spec.axes:
        return
    axes = dict.fromkeys(spec.axes, read)
    if type(layer) is layers.PReLU:
        alpha = layer.alpha.shape
        axes = {axis: alpha[axis - 1] for axis in spec.axes}
    elif read is None:
        return
    layer.input_spec = keras.layers.InputSpec(
        ndim=spec.ndim, min_ndim=spec.min_ndim, axes=axes
    )


def tell_size(layer: Any, axis: int, size: int) -> None:
    """Has a Reshape make, or an input of a nested model take, another size.

    `axis` counts from the first after the batch.
    """
    if isinstance(layer, layers.Reshape):
        shape = list(layer.target_shape)
        if shape[axis] != -1:
            shape[axis] = size
            layer.target_shape = tuple(shape)
    elif not isinstance(layer, layers.Layer):  # the operation, in a graph
        shape = list(layer.newshape)
        if shape[axis + 1] != -1:
            shape[axis + 1] = size
            layer.newshape = tuple(shape)
            layer._auto_config = type(layer._auto_config)(newshape=layer.newshape)
    else:
        shape = list(layer._batch_shape)
        shape[axis + 1] = size
        layer._batch_shape = tuple(shape)
        layer._input_tensor._shape = tuple(shape)


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
    called = [(call.operation, call.given) for call in recording.calls]
    for layer, given in [*called, *recording.called.items()]:
        shapes = getattr(layer, "_build_shapes_dict", None)
        if isinstance(layer, keras.layers.Layer) and shapes:
            layer._build_shapes_dict = _renewed(layer, dict(shapes), *given)
    # A nested model's graph first: the graph around it asks it.
    for part in reversed(all_layers(model)):
        renew_shapes(part, recording.returned)


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
    if isinstance(shape, (list, tuple)) and not isinstance(
        tensors, (list, tuple, dict)
    ):
        given = getattr(tensors, "shape", None)
        if given is None or len(given) != len(shape):
            return shape
        return tuple(old and new for old, new in zip(shape, given, strict=True))
    if isinstance(shape, (list, tuple)) and isinstance(tensors, (list, tuple)):
        pairs = zip(shape, tensors, strict=False)
        return type(shape)(_resized(*pair) for pair in pairs)
    if isinstance(shape, dict) and isinstance(tensors, dict):
        return {name: _resized(shape[name], tensors.get(name)) for name in shape}
    return shape
