"""Feed-forward networks of Dense layers, found in any model by following the data."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import keras

from keras_idea.groups.axes import Axes
from keras_idea.groups.between import (
    cuts_of,
    has_own_weights,
    weights_of,
)
from keras_idea.groups.dense_reasons import (
    why_not_called,
    why_not_plain,
    why_opaque,
)
from keras_idea.groups.on_each import OnEach, is_known, reads_or_makes
from keras_idea.keras_private.layer_walk import (
    is_built,
    student_of,
    sublayers,
    walk,
)
from keras_idea.keras_private.layers import (
    set_input_dim,
    set_last_dim,
    set_output_dim,
    stored_kernel,
)
from keras_idea.keras_private.models import Functional
from keras_idea.keras_private.symbolic import Call, Given, Recording, record
from keras_idea.layers.cut import Cut

Group = TypeVar("Group")
_OUTPUT = "it is an output of the model"
_INPUT = "it is combined with an input of the model"
_END = (
    "it enters a nested model, or enters or leaves a layer that cannot be looked into"
)
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
    `keeps_zeros`: what is between gives 0 for a neuron of zeros.
    `between`: layers on the way that have weights of each neuron, as normalizations do.
    `wrappers`: layers that call a reader on their own input.
    """

    makers: list[keras.layers.Layer]
    readers: list[keras.layers.Layer]
    calls_readers: bool = True
    keeps_zeros: bool = True
    between: Sequence[keras.layers.Layer] = ()
    wrappers: Sequence[keras.layers.Layer] = ()

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the layers, the makers first."""
        return [*self.makers, *self.readers]

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels have places for."""
        return stored_kernel(self.readers[0]).shape[0]

    @property
    def quiet(self) -> bool:
        """bool, whether a pruned neuron is 0 for its readers."""
        others = (*self._biases(), *(c for la in self.between for c in weights_of(la)))
        return self.keeps_zeros and all(cut.variable.trainable for cut in others)

    def own_cuts(self) -> list[Cut]:
        """How the neurons lie in their kernels, which come first, and biases.

        A neuron of zeros in these is pruned. Frozen biases say nothing, and stay.
        """
        cuts = [Cut(stored_kernel(layer), 1) for layer in self.makers]
        cuts += [Cut(stored_kernel(layer), 0) for layer in self.readers]
        cuts += [cut for cut in self._biases() if cut.variable.trainable]
        # Two layers may have one kernel.
        return list({id(cut.variable): cut for cut in cuts}.values())

    def cuts(self) -> list[Cut]:
        """How the neurons lie in all weights that are zero for a pruned neuron."""
        between = [cut for layer in self.between for cut in weights_of(layer)]
        return [*self.own_cuts(), *(c for c in between if c.variable.trainable)]

    def held_cuts(self) -> list[Cut]:
        """How the neurons lie in all variables, also in what is frozen or measured."""
        between = [cut for layer in self.between for cut in cuts_of(layer)]
        cuts = [*self.own_cuts(), *self._biases(), *between]
        return list({id(cut.variable): cut for cut in cuts}.values())

    def _biases(self) -> list[Cut]:
        biases = [layer.bias for layer in self.makers if layer.bias is not None]
        return [Cut(bias, 0, is_bias=True) for bias in biases]

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their kernels were narrowed."""
        for layer in self.makers:
            set_output_dim(layer, hidden_dim)
        for layer in self.readers:
            set_input_dim(layer, hidden_dim)
        for layer in (*self.between, *self.wrappers):
            set_last_dim(layer, hidden_dim)


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
    calls = [call for each in recordings for call in each.calls]
    axes = Axes()
    for layer in dense:
        axes.join(_columns(layer), _columns(layer))
        reason = why_not_plain(layer)
        if reason is not None:
            _settle(layer, axes, reason)
    for layer in _output_layers(recordings):  # the first reason, before a softmax
        axes.settle(_columns(layer), _OUTPUT)
    way = _Way(axes, dense)
    for call in calls:
        way.follow(call)
    for each in recordings:
        way.end(each)
        for opaque in each.opaque.keys() - recordings[0].opaque.keys():
            reason = why_opaque(opaque, each)
            for layer in [part for part in walk(opaque) if part in dense]:
                _settle(layer, axes, f"{reason}, as it is called in training")
    for name in _compared_by_distillers(model):
        for tensor in [t for c in calls if c.operation.name == name for t in c.outputs]:
            axes.settle(id(tensor), "a loss of the Distiller reads it")
    return _found(dense, way, recordings)


def follow_model(model: keras.layers.Layer) -> list[Recording]:
    """What is called in a model, at rest and where it may differ in training."""
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


def _output_layers(recordings: list[Recording]) -> list[keras.layers.Layer]:
    """The dense layers whose output is one of the model's."""
    outputs = {id(tensor) for each in recordings for tensor in each.outputs}
    calls = [call for each in recordings for call in each.calls]
    found = [
        dense_of(call.operation) for call in calls if id(call.outputs[0]) in outputs
    ]
    return [layer for layer in found if layer is not None]


def _has_code(layer: keras.layers.Layer) -> bool:
    """Whether a layer's own `call` may do something else in training."""
    plain = isinstance(layer, (Functional, keras.Sequential))
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


def dense_of(operation: Any) -> Any:
    """The dense layer that an operation is, or calls on every place; else None."""
    if type(operation) is keras.layers.TimeDistributed and operation.built:
        operation = operation.layer
    return operation if is_dense(operation) else None


# By the kernel, so that two layers with one kernel have the same axes.
def _columns(layer: keras.layers.Layer) -> tuple[int, str]:
    return id(stored_kernel(layer)), "columns"


def _rows(layer: keras.layers.Layer) -> tuple[int, str]:
    return id(stored_kernel(layer)), "rows"


def _neurons(layer: keras.layers.Layer) -> tuple[int, str]:
    return id(layer), "neurons"


class _Way:
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
            axes.join(id(call.inputs[0]), _rows(dense))
            axes.join(id(call.outputs[0]), _columns(dense))
            self._of_neurons.add(id(call.outputs[0]))
            if axes.reason(_columns(dense)) is None:
                given = dense.activation, call.outputs[0]
                reason = self.on_each.why_not_activation(*given)
                if reason is not None:
                    axes.settle(_columns(dense), reason)
            return
        for layer in [
            self._kernels[id(a)] for a in call.arguments if id(a) in self._kernels
        ]:
            name = type(call.operation).__name__
            _settle(layer, axes, f"{name} reads its kernel")
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
            axes.join(_neurons(call.operation), id(call.outputs[0]))

    def _brings_neurons(self, call: Call) -> bool:
        """Whether neurons come to a call of which it is not known that they stay."""
        inputs = [id(tensor) for tensor in call.inputs]
        return any(i in self._of_neurons and not self.axes.reason(i) for i in inputs)

    def end(self, recording: Recording) -> None:
        """Settles what comes into a recording and leaves it, and what it shows."""
        ends = (
            (_OUTPUT, recording.outputs),
            (_INPUT, recording.inputs),
            (_END, recording.ends),
        )
        for reason, tensors in ends:
            for tensor in tensors:
                self.axes.settle(id(tensor), reason)
        for variable in recording.read:
            if id(variable) in self._kernels:
                layer = self._kernels[id(variable)]
                _settle(layer, self.axes, "a layer computes with its kernel")
        for holder in recording.opaque:
            # What it does with the layers that it calls itself is not known.
            for layer in filter(is_dense, sublayers(holder)):
                if layer.built:
                    _settle(layer, self.axes, why_opaque(holder, recording))
        for holder in recording.holders:
            for layer in filter(is_dense, sublayers(holder)):
                if layer.built:
                    _settle(layer, self.axes, _HELD)


def _found(
    dense: list[keras.layers.Layer], way: _Way, recordings: list[Recording]
) -> Found[DenseGroup]:
    groups: list[DenseGroup] = []
    left_out: dict[str, str] = {}
    calls, axes = way.calls, way.axes
    linear = _linear(calls)
    called = {id(dense_of(call.operation)) for call in calls}
    tensors = {id(t): t for call in calls for t in (*call.inputs, *call.outputs)}
    others = {id(call.operation): call.operation for call in calls}.values()
    for joined in axes.sets():
        ours = set(joined)
        makers = [layer for layer in dense if _columns(layer) in ours]
        readers = [layer for layer in dense if _rows(layer) in ours]
        reason = axes.reason(joined[0])
        if any(reader in makers for reader in readers):
            reason = reason or "a layer reads the neurons that it makes"
        if makers and reason is None and readers:
            makers.sort(key=lambda layer: id(layer) in linear)
            wrappers = [
                other
                for other in others
                if not is_dense(other) and dense_of(other) in readers
            ]
            group = DenseGroup(
                makers,
                readers,
                calls_readers=not wrappers,
                keeps_zeros=way.on_each.is_zero(
                    tensors[i] for i in tensors.keys() & ours
                ),
                between=[layer for layer in others if _neurons(layer) in ours],
                wrappers=wrappers,
            )
            groups.append(group)
        else:
            for layer in makers:
                seen = "no Dense layer reads it"
                if id(layer) not in called:
                    seen = why_not_called(layer, recordings)
                left_out[layer.path] = reason or seen
    return Found(groups, left_out)


def _linear(calls: list[Call]) -> set[int]:
    """The `id`s of the dense layers whose outputs are multiplied as they are: gates."""
    multiplied = {
        id(tensor)
        for call in calls
        if type(call.operation).__name__ == "Multiply"
        for tensor in call.inputs
    }
    return {
        id(dense)
        for call in calls
        if (dense := dense_of(call.operation)) is not None
        and dense.activation is keras.activations.linear
        and any(id(tensor) in multiplied for tensor in call.outputs)
    }
