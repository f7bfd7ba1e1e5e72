"""Feed-forward networks of Dense layers, found in any model by following the data."""

import dataclasses
from collections.abc import Container
from typing import Generic, TypeVar

import keras

from keras_idea.groups.axes import Axes
from keras_idea.groups.dense_reasons import why_not_on_each, why_not_plain
from keras_idea.keras_private.layer_walk import (
    is_built,
    student_of,
    sublayers,
    walk,
)
from keras_idea.keras_private.layers import (
    set_input_dim,
    set_output_dim,
    stored_kernel,
)
from keras_idea.keras_private.models import Functional
from keras_idea.keras_private.symbolic import Call, Given, Recording, record
from keras_idea.layers.cut import Cut

Group = TypeVar("Group")
#: Operations on each neuron that may make another number of zeros.
_LOUD = frozenset(
    """Add Clip Divide Exp HardSigmoid LogSigmoid Maximum Minimum Power Sigmoid
    Softplus Subtract TrueDivide""".split()
)
_OPAQUE = "a layer that holds it cannot be looked into"
_OUTPUT = "it is an output of the model"
_INPUT = "it is combined with an input of the model"
_END = (
    "it enters a nested model, or enters or leaves a layer that cannot be looked into"
)
_UNCALLED = "the model's `call` does not call it"
_HELD = (
    "the model has no `call` that calls it, so what reads it in `train_step` is not "
    "known: put the layers in a Sequential or functional model, and call that"
)
_UNBUILT = (
    "the model is not built, so its `call` is not known: call it on data (or remove "
    "`call`, if only `train_step` calls the layers)"
)


@dataclasses.dataclass(frozen=True)
class DenseGroup:
    """Neurons that some layers make and others read.

    They are the columns of each of the makers, of which one whose output is multiplied
    as it is, a gate, comes after the others, and the rows of the readers.
    `calls_readers`: the readers are called, so that their input can be looked at.
    `quiet`: what is between gives 0 for a neuron of zeros.
    """

    makers: list[keras.layers.Layer]
    readers: list[keras.layers.Layer]
    calls_readers: bool = True
    quiet: bool = True

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the layers, the makers first."""
        return [*self.makers, *self.readers]

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels have places for."""
        return stored_kernel(self.readers[0]).shape[0]

    def cuts(self) -> list[Cut]:
        """How the neurons lie in the layers' weights, the kernels first."""
        kernels = [Cut(stored_kernel(layer), 1) for layer in self.makers]
        kernels += [Cut(stored_kernel(layer), 0) for layer in self.readers]
        biases = [layer.bias for layer in self.makers if layer.bias is not None]
        cuts = [*kernels, *(Cut(bias, 0, is_bias=True) for bias in biases)]
        # Two layers may have one kernel.
        return list({id(cut.variable): cut for cut in cuts}.values())

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their kernels were narrowed."""
        for layer in self.makers:
            set_output_dim(layer, hidden_dim)
        for layer in self.readers:
            set_input_dim(layer, hidden_dim)


@dataclasses.dataclass(frozen=True)
class Found(Generic[Group]):
    """What was found in a model: groups in its order, and by path why others not."""

    groups: list[Group]
    left_out: dict[str, str]


def find_dense_groups(model: keras.layers.Layer) -> Found[DenseGroup]:
    """Finds the neurons of a model's Dense layers that can be cut out.

    Those are the outputs of Dense (or such EinsumDense) layers that reach Dense layers,
    and nothing else, through operations on each neuron alone.

    Example:
    >>> layers = [keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(2)]
    >>> found = find_dense_groups(keras.Sequential(layers))
    >>> [group.hidden_dim for group in found.groups]
    [8]
    >>> list(found.left_out.values())
    ['it is an output of the model']
    """
    dense = [layer for layer in walk(model) if is_dense(layer) and layer.built]
    if not is_built(student_of(model)):
        return Found([], {layer.path: _UNBUILT for layer in dense})
    if not dense:
        return Found([], {})
    # Kept until the end: tensors are told apart by their `id`.
    recordings = follow_model(model)
    recording = recordings[0]
    activations = [activation_of(layer) for layer in dense]
    axes = Axes()
    for layer in dense:
        axes.join(_columns(layer), _columns(layer))
    for layer in _output_layers(recordings):  # the first reason, before a softmax
        axes.settle(_columns(layer), _OUTPUT)
    for layer, activation in zip(dense, activations, strict=True):
        for tensor in (*activation.inputs, *activation.outputs):
            axes.join(_columns(layer), id(tensor))
        reason = why_not_plain(layer)
        if reason is not None:
            _settle(layer, axes, reason)
    kernels = {id(stored_kernel(layer)): layer for layer in dense}
    calls = [call for each in (*recordings, *activations) for call in each.calls]
    for call in calls:
        _follow(call, axes, kernels)
    for each in recordings:
        ends = ((_OUTPUT, each.outputs), (_INPUT, each.inputs), (_END, each.ends))
        for reason, tensors in ends:
            for tensor in tensors:
                axes.settle(id(tensor), reason)
        for layer in [kernels[id(v)] for v in each.read if id(v) in kernels]:
            _settle(layer, axes, "a layer computes with its kernel")
        for opaque in each.opaque.keys() - recording.opaque.keys():
            for layer in filter(is_dense, walk(opaque)):
                _settle(layer, axes, f"{_OPAQUE}, as it is called in training")
        for holder in each.holders:
            for layer in filter(is_dense, sublayers(holder)):
                if layer.built:
                    _settle(layer, axes, _HELD)
    for name in _compared_by_distillers(model):
        for tensor in [t for c in calls if c.operation.name == name for t in c.outputs]:
            axes.settle(id(tensor), "a loss of the Distiller reads it")
    hidden = {id(part) for opaque in recording.opaque for part in walk(opaque)}
    return _found(dense, axes, calls, hidden)


def follow_model(model: keras.layers.Layer) -> list[Recording]:
    """What is called in a model, at rest and where it may differ in training."""
    holders = {
        id(holder)
        for holder in walk(model)
        if isinstance(holder, keras.layers.Activation)
        or any(is_dense(part) for part in walk(holder) if part is not holder)
    }
    student = student_of(model)
    recordings = [record(student, lambda layer: id(layer) in holders)]
    if any(id(layer) in holders and _has_code(layer) for layer in walk(model)):
        trained = record(student, lambda layer: id(layer) in holders, training=True)
        recordings.append(trained)
    return recordings


def called_in(model: keras.layers.Layer) -> dict[keras.layers.Layer, Given]:
    """What each layer that holds dense ones is called on in a model, where known."""
    return {k: v for each in follow_model(model) for k, v in each.called.items()}


def _output_layers(recordings: list[Recording]) -> list[keras.layers.Layer]:
    """The dense layers whose output is one of the model's."""
    outputs = {id(tensor) for each in recordings for tensor in each.outputs}
    calls = [call for each in recordings for call in each.calls]
    found = [call.operation for call in calls if id(call.outputs[0]) in outputs]
    return [operation for operation in found if is_dense(operation)]


def _has_code(layer: keras.layers.Layer) -> bool:
    """Whether a layer's own `call` may do something else in training."""
    plain = isinstance(layer, (Functional, keras.Sequential, keras.layers.Activation))
    return not plain and not type(layer).__module__.startswith("keras_hub.")


def _compared_by_distillers(model: keras.layers.Layer) -> list[str]:
    """Names of a student's layers whose outputs a loss compares with its teacher's."""
    distillers = [m for m in walk(model) if isinstance(m, keras.distillation.Distiller)]
    losses = [loss for each in distillers for loss in each.distillation_losses]
    names = [getattr(loss, "student_layer_name", None) for loss in losses]
    return [name for name in names if name]


def _settle(layer: keras.layers.Layer, axes: Axes, reason: str) -> None:
    axes.settle(_columns(layer), reason)
    axes.settle(_rows(layer), reason)


def is_dense(layer: object) -> bool:
    """bool, whether a layer multiplies the last axis by a kernel `(D, F)`."""
    if not isinstance(layer, (keras.layers.Dense, keras.layers.EinsumDense)):
        return False
    # While a method measures, its class is a subclass of ours.
    call = getattr(type(layer), "_stock_class", type(layer)).call
    if isinstance(layer, keras.layers.Dense):
        return call is keras.layers.Dense.call
    given, made = layer.equation.replace(" ", "").split("->")
    inputs, kernel = given.split(",")
    return (
        call is keras.layers.EinsumDense.call
        and len(kernel) == 2
        and (inputs[-1:], made[-1:]) == (kernel[0], kernel[1])
        and inputs[:-1] == made[:-1]
        and layer.bias_axes in (None, made[-1])
    )


def activation_of(layer: keras.layers.Layer) -> Recording:
    """What the activation of a dense layer does to its columns."""
    function = keras.layers.Activation(layer.activation, name="activation")
    function.build((2, stored_kernel(layer).shape[-1]))
    return record(function, lambda part: part is function)


# By the kernel, so that two layers with one kernel have the same axes.
def _columns(layer: keras.layers.Layer) -> tuple[int, str]:
    return id(stored_kernel(layer)), "columns"


def _rows(layer: keras.layers.Layer) -> tuple[int, str]:
    return id(stored_kernel(layer)), "rows"


def _follow(call: Call, axes: Axes, kernels: dict[int, keras.layers.Layer]) -> None:
    operation = call.operation
    if is_dense(operation):
        axes.join(id(call.inputs[0]), _rows(operation))
        axes.join(id(call.outputs[0]), _columns(operation))
        return
    for layer in [kernels[id(a)] for a in call.arguments if id(a) in kernels]:
        _settle(layer, axes, f"{type(operation).__name__} reads its kernel")
    reason = why_not_on_each(call)
    for tensor in (*call.inputs, *call.outputs):
        if reason is not None:
            axes.settle(id(tensor), reason)
        else:
            axes.join(id(call.outputs[0]), id(tensor))


def _found(
    dense: list[keras.layers.Layer], axes: Axes, calls: list[Call], hidden: set[int]
) -> Found[DenseGroup]:
    """Groups of joined axes; `hidden` are the `id`s of what lies in opaque layers."""
    groups: list[DenseGroup] = []
    left_out: dict[str, str] = {}
    loud = {id(t) for call in calls if _named(call, _LOUD) for t in call.outputs}
    linear = _linear(calls)
    called = {id(call.operation) for call in calls}
    for joined in axes.sets():
        ours = set(joined)
        makers = [layer for layer in dense if _columns(layer) in ours]
        readers = [layer for layer in dense if _rows(layer) in ours]
        reason = axes.reason(joined[0])
        if any(reader in makers for reader in readers):
            reason = reason or "a layer reads the neurons that it makes"
        if makers and reason is None and readers:
            makers.sort(key=lambda layer: id(layer) in linear)
            groups.append(DenseGroup(makers, readers, quiet=ours.isdisjoint(loud)))
        else:
            for layer in makers:
                unseen = _OPAQUE if id(layer) in hidden else _UNCALLED
                seen = "no Dense layer reads it" if id(layer) in called else unseen
                left_out[layer.path] = reason or seen
    return Found(groups, left_out)


def _linear(calls: list[Call]) -> set[int]:
    """The `id`s of the dense layers whose outputs are multiplied as they are: gates."""
    multiplied = {id(t) for c in calls if _named(c, {"Multiply"}) for t in c.inputs}
    return {
        id(call.operation)
        for call in calls
        if is_dense(call.operation)
        and call.operation.activation is keras.activations.linear
        and any(id(tensor) in multiplied for tensor in call.outputs)
    }


def _named(call: Call, names: Container[str]) -> bool:
    return type(call.operation).__name__ in names
