"""Feed-forward networks of Dense layers, found in any model by following the data."""

import dataclasses
from collections.abc import Sequence
from typing import Generic, TypeVar

import keras

from keras_idea._groups.axes import Axes
from keras_idea._groups.between import cuts_of, weights_of
from keras_idea._groups.cut import Cut
from keras_idea._groups.dense_reasons import (
    why_not_called,
    why_not_plain,
    why_opaque,
)
from keras_idea._groups.follow import (
    OUTPUT,
    Way,
    columns,
    dense_of,
    follow_model,
    is_dense,
    neurons,
    rows,
    settle,
)
from keras_idea._groups.kinds import NEURONS
from keras_idea._keras.layers import (
    is_built,
    set_input_dim,
    set_last_dim,
    set_output_dim,
    stored_kernel,
    student_of,
    walk,
)
from keras_idea._keras.symbolic import Call, Recording

Group = TypeVar("Group")
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
    `preserves_zero`: what is between gives 0 for a neuron of zeros.
    `between`: layers on the way that have weights of each neuron, as normalizations do.
    `wrappers`: layers that call a reader on their own input.
    """

    makers: list[keras.layers.Layer]
    readers: list[keras.layers.Layer]
    calls_readers: bool = True
    preserves_zero: bool = True
    between: Sequence[keras.layers.Layer] = ()
    wrappers: Sequence[keras.layers.Layer] = ()
    kind = NEURONS

    @property
    def shown_by(self) -> keras.layers.Layer | None:
        """The one layer that is called on the hidden activations, or None."""
        alone = self.calls_readers and len(self.readers) == 1
        return self.readers[0] if alone else None

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias of the first reader, or None."""
        return self.readers[0].bias

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the layers, the makers first."""
        return [*self.makers, *self.readers]

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels have places for."""
        return stored_kernel(self.readers[0]).shape[0]

    def own_cuts(self) -> list[Cut]:
        """How the neurons lie in their kernels, which come first, and biases."""
        kernels = [Cut(stored_kernel(layer), 1) for layer in self.makers]
        kernels += [Cut(stored_kernel(layer), 0) for layer in self.readers]
        biases = [layer.bias for layer in self.makers if layer.bias is not None]
        cuts = [*kernels, *(Cut(bias, 0, is_bias=True) for bias in biases)]
        # Two layers may have one kernel.
        return list({id(cut.variable): cut for cut in cuts}.values())

    def cuts(self) -> list[Cut]:
        """How the neurons lie in all weights, also of the layers between."""
        between = [cut for layer in self.between for cut in weights_of(layer)]
        return [*self.own_cuts(), *between]

    def held_cuts(self) -> list[Cut]:
        """How the neurons lie in all variables, also in what is measured of them."""
        between = [cut for layer in self.between for cut in cuts_of(layer)]
        return [*self.own_cuts(), *between]

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
        axes.join(columns(layer), columns(layer))
        reason = why_not_plain(layer)
        if reason is not None:
            settle(layer, axes, reason)
    for layer in _output_layers(recordings):  # the first reason, before a softmax
        axes.settle(columns(layer), OUTPUT)
    way = Way(axes, dense)
    for call in calls:
        way.follow(call)
    for each in recordings:
        way.end(each)
        for opaque in each.opaque.keys() - recordings[0].opaque.keys():
            reason = why_opaque(opaque, each)
            for layer in [part for part in walk(opaque) if part in dense]:
                settle(layer, axes, f"{reason}, as it is called in training")
    compared = compared_by_distillers(model)
    made = [(call.operation, call.outputs) for call in calls]
    made += [pair for each in recordings for pair in each.returned.items()]
    for layer, tensors in made:
        if layer.name in compared:
            for tensor in tensors:
                axes.settle(id(tensor), "a loss of the Distiller reads it")
    return _found(dense, way, recordings)


def _output_layers(recordings: list[Recording]) -> list[keras.layers.Layer]:
    """The dense layers whose output is one of the model's."""
    outputs = {id(tensor) for each in recordings for tensor in each.outputs}
    calls = [call for each in recordings for call in each.calls]
    shown = [call for call in calls if not outputs.isdisjoint(map(id, call.outputs))]
    found = [dense_of(call.operation) for call in shown]
    return [layer for layer in found if layer is not None]


def compared_by_distillers(model: keras.layers.Layer) -> list[str]:
    """Names of a student's layers whose outputs a loss compares with its teacher's."""
    distillers = [m for m in walk(model) if isinstance(m, keras.distillation.Distiller)]
    losses = [loss for each in distillers for loss in each.distillation_losses]
    names = [getattr(loss, "student_layer_name", None) for loss in losses]
    return [name for name in names if name]


def _found(
    dense: list[keras.layers.Layer], way: Way, recordings: list[Recording]
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
        makers = [layer for layer in dense if columns(layer) in ours]
        readers = [layer for layer in dense if rows(layer) in ours]
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
                preserves_zero=way.on_each.is_zero(
                    tensor for key, tensor in tensors.items() if key in ours
                ),
                between=[layer for layer in others if neurons(layer) in ours],
                wrappers=wrappers,
            )
            groups.append(group)
        else:
            for layer in makers:
                why = "no Dense layer reads it"
                if id(layer) not in called:
                    why = why_not_called(layer, recordings)
                left_out[layer.path] = reason or why
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
