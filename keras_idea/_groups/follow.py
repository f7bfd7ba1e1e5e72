"""The way of the data through a model: which axes of tensors and kernels are one."""

from typing import Any

import keras

from keras_idea._groups.axes import Axes
from keras_idea._groups.between import has_own_weights
from keras_idea._groups.dense_reasons import why_opaque
from keras_idea._groups.on_each import OnEach, is_known, reads_or_makes
from keras_idea._keras.layers import stored_kernel, student_of, sublayers, walk
from keras_idea._keras.models import Functional
from keras_idea._keras.symbolic import Call, Given, Recording, record

#: Why what a model shows must stay.
OUTPUT = "it is an output of the model"
_INPUT = "it is combined with an input of the model"
_END = (
    "it enters a nested model, or enters or leaves a layer that cannot be looked into"
)
_HELD = (
    "the model has no `call` that calls it, so what reads it in `train_step` is not "
    "known: put the layers in a Sequential or functional model, and call that"
)


def follow_model(model: keras.layers.Layer) -> list[Recording]:
    """What is called in a model, in inference and where it may differ in training."""
    holders = {
        id(holder)
        for holder in walk(model)
        if any(is_dense(part) for part in walk(holder) if part is not holder)
        and dense_of(holder) is None
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


def _has_code(layer: keras.layers.Layer) -> bool:
    """Whether a layer's own `call` may do something else in training."""
    plain = isinstance(layer, (Functional, keras.Sequential))
    return not plain and not type(layer).__module__.startswith("keras_hub.")


def settle(layer: keras.layers.Layer, axes: Axes, reason: str) -> None:
    """Has what a dense layer makes, and what it reads, stay."""
    axes.settle(columns(layer), reason)
    axes.settle(rows(layer), reason)


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


def dense_of(operation: Any) -> Any:
    """The dense layer that an operation is, or calls on every place; else None."""
    if type(operation) is keras.layers.TimeDistributed and operation.built:
        operation = operation.layer
    return operation if is_dense(operation) else None


# By the kernel, so that two layers with one kernel have the same axes.
def columns(layer: keras.layers.Layer) -> tuple[int, str]:
    """The axis of what a dense layer makes."""
    return id(stored_kernel(layer)), "columns"


def rows(layer: keras.layers.Layer) -> tuple[int, str]:
    """The axis of what a dense layer reads."""
    return id(stored_kernel(layer)), "rows"


def neurons(layer: keras.layers.Layer) -> tuple[int, str]:
    """The axis along which a layer has weights of each neuron."""
    return id(layer), "neurons"


class Way:
    """The way of the data through a model: which axes are one, and which must stay."""

    def __init__(self, axes: Axes, dense: list[keras.layers.Layer]) -> None:
        self.axes, self.on_each = axes, OnEach()
        self.calls: list[Call] = []
        self._kernels = {id(stored_kernel(layer)): layer for layer in dense}
        self._of_neurons: set[int] = set()  # tensors that come from dense layers

    def follow(self, call: Call) -> None:
        """Goes through the next call."""
        self.calls.append(call)
        dense, axes = dense_of(call.operation), self.axes
        if dense is not None:
            axes.join(id(call.inputs[0]), rows(dense))
            axes.join(id(call.outputs[0]), columns(dense))
            self._of_neurons.add(id(call.outputs[0]))
            if axes.reason(columns(dense)) is None:
                given = dense.activation, call.outputs[0]
                reason = self.on_each.why_not_activation(*given)
                if reason is not None:
                    axes.settle(columns(dense), reason)
            return
        for layer in [
            self._kernels[id(a)] for a in call.arguments if id(a) in self._kernels
        ]:
            name = type(call.operation).__name__
            settle(layer, axes, f"{name} reads its kernel")
        tensors = [*call.inputs, *call.outputs]
        reason = None if is_known(call) else reads_or_makes(call)
        if self._brings_neurons(call):
            reason = self.on_each.why_not(call)
            self._of_neurons |= {id(t) for t in call.outputs}
        for tensor in tensors:
            if reason is not None:
                axes.settle(id(tensor), reason)
            else:
                axes.join(id(call.outputs[0]), id(tensor))
        if reason is None and has_own_weights(call.operation):
            axes.join(neurons(call.operation), id(call.outputs[0]))

    def _brings_neurons(self, call: Call) -> bool:
        """Whether neurons come to a call of which it is not known that they stay."""
        inputs = [id(tensor) for tensor in call.inputs]
        return any(i in self._of_neurons and not self.axes.reason(i) for i in inputs)

    def end(self, recording: Recording) -> None:
        """Settles what comes into a recording and leaves it, and what it shows."""
        entering = [tensor for _, given in recording.entrances for tensor in given]
        ends = (
            (OUTPUT, recording.outputs),
            (_INPUT, recording.inputs),
            (_END, [*entering, *recording.ends]),
        )
        for reason, tensors in ends:
            for tensor in tensors:
                self.axes.settle(id(tensor), reason)
        for variable in recording.read:
            if id(variable) in self._kernels:
                layer = self._kernels[id(variable)]
                settle(layer, self.axes, "a layer computes with its kernel")
        for holder in recording.opaque:
            # What it does with the layers that it calls itself is not known.
            for layer in filter(is_dense, sublayers(holder)):
                if layer.built:
                    settle(layer, self.axes, why_opaque(holder, recording))
        for holder in recording.holders:
            for layer in filter(is_dense, sublayers(holder)):
                if layer.built:
                    settle(layer, self.axes, _HELD)
