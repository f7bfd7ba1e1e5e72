"""Follows the tensors of a model through all its calls, and joins their atoms."""

import collections
import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph import operations
from keras_idea._graph.atoms import Atoms, Made, at_axis, has_places, varies
from keras_idea._graph.layers import (
    ATTENTION,
    looked_into,
    rule_of,
    slides,
    why_not_followed,
)
from keras_idea._keras.channels import (
    dense_of,
    input_layers,
    makes_its_spec,
    takes_sizes,
)
from keras_idea._keras.layers import (
    own_weights,
    student_of,
    sublayers,
    takes_training,
    walk,
)
from keras_idea._keras.models import Functional
from keras_idea._keras.symbolic import Call, Recording, open_sizes, record
from keras_idea._layers.ffn import FFNLayer
from keras_idea._validation import what_was_raised
from keras_idea.functional.by_numbers import PrunedNumbers

OUTPUT = "it is an output of the model"
_INPUT = "an input of the model"
_END = "it enters or leaves a layer that cannot be looked into"
_CONSTRUCTED = "it enters a layer whose constructor says in an InputSpec how wide it is"
UNBUILT = (
    "the model is not built, so its `call` is not known: call it on data (or remove "
    "`call`, if only `train_step` calls the layers)"
)
_HELD = (
    "the model has no `call` that calls it, so what reads it in `train_step` is not "
    "known: put the layers in a Sequential or functional model, and call that"
)
#: What stands for a height or width that a model leaves open: it may be halved often.
OPEN_SIZE = 128


def followed(
    model: keras.layers.Layer,
    training: bool = False,
    whole: Collection[keras.layers.Layer] = (),
) -> Recording:
    """Records what is called in a model, layer by layer; layers in `whole` are one."""
    made = []

    def apart(layer: keras.layers.Layer) -> bool:
        return layer not in whole and looked_into(layer)

    sizes = [OPEN_SIZE] if any(slides(layer) for layer in walk(model)) else []
    for size in (*sizes, 8):
        with open_sizes(size):
            made.append(record(student_of(model), apart, training))
        if not made[-1].opaque:
            break
    return min(made, key=lambda recording: len(recording.opaque))


def has_code(model: keras.layers.Layer) -> bool:
    """Returns whether a model holds layers with a `call` that their user wrote."""
    return any(
        looked_into(layer)
        and not isinstance(layer, (Functional, keras.Sequential, *ATTENTION))
        and not type(layer).__module__.startswith("keras_hub.")
        for layer in walk(model)
    )


class Follow:
    """Follows the calls of a model."""

    def __init__(self, model: keras.layers.Layer) -> None:
        self.atoms = Atoms()
        self.layers = list(walk(student_of(model)))
        self.sized: list[tuple[Any, np.ndarray]] = []
        self.numbers = PrunedNumbers()
        #: `id`s of the operations Reshape in graphs, which know sizes as layers do.
        self._in_graphs = {
            id(operation)
            for layer in self.layers
            if isinstance(layer, Functional)
            for operation in layer.operations
            if type(operation).__name__ == "Reshape"
        }
        self._held = set(map(id, self.layers)) | self._in_graphs
        #: Names of layers whose outputs a loss compares with a teacher's.
        self._compared = {
            getattr(loss, "student_layer_name", None)
            for part in walk(model)
            if isinstance(part, keras.distillation.Distiller)
            for loss in part.distillation_losses
        }
        self._kept: list[keras.KerasTensor] = []
        #: How often each vector whose value code has read was met, told by its numbers.
        self._met: collections.Counter[int] = collections.Counter()

    def whole(self, recording: Recording) -> None:
        """Goes through a recording, and settles what enters and leaves it."""
        atoms, outputs = self.atoms, set(map(id, recording.outputs))
        self._met.clear()
        for tensor in recording.inputs:
            atoms.of_tensor[id(tensor)] = atoms.constant(tensor, _INPUT)
        for call in recording.calls:
            self._call(call)
            kernel = dense_of(call.operation) or slides(call.operation)
            if kernel and not outputs.isdisjoint(map(id, call.outputs)):
                for place in atoms.places.values():  # not for a softmax in it
                    if place.role == "makes" and call.operation in place.layers:
                        atoms.settle(place.atoms, OUTPUT, first=True)
        compared = [
            tensor
            for call in [*recording.calls, *recording.composites]
            if call.operation.name in self._compared
            for tensor in call.outputs
        ]
        for reason, tensors in (
            (OUTPUT, recording.outputs),
            (_END, recording.ends),
            ("a loss of the Distiller reads it", compared),
        ):
            for tensor in tensors:
                if id(tensor) in atoms.of_tensor:
                    atoms.settle(atoms.of(tensor), reason)
        for call in recording.composites:
            layer: Any = call.operation
            if isinstance(layer, (Functional, keras.Sequential)):
                self._entrance(layer, call.inputs)
            elif takes_sizes(layer) and call.inputs:
                self._specified(layer, call.inputs[0])
        reads = collections.Counter(map(id, recording.read))
        for variable in recording.read:
            if reads[id(variable)] > self._met[id(variable)]:
                atoms.settle_variable(variable, "a layer computes with its kernel")
        for holder, (cause, error) in recording.opaque.items():
            why = (
                f"'{holder.name}', which holds it, cannot be called on a symbolic "
                f"batch of 2: {type(cause).__name__} '{cause.name}' raised "
                f"{what_was_raised(error)}"
            )
            self._not_followed(holder, why)
        for holder in recording.holders:
            self._not_followed(holder, _HELD)

    def _not_followed(self, holder: keras.layers.Layer, reason: str) -> None:
        """Settles what a layer holds and calls itself, in a way that is not known."""
        for part in (holder, *sublayers(holder)):
            if part is holder or not looked_into(part):
                held = own_weights(part)[0] if part is holder else part.variables
                for variable in held:
                    self.atoms.settle_variable(variable, reason)

    def _call(self, call: Call) -> None:
        atoms, layer = self.atoms, call.operation
        is_layer = isinstance(layer, keras.layers.Layer)
        name = type(layer).__name__
        why = None
        if isinstance(layer, FFNLayer):
            self._end(call, f"{name} '{layer.name}' reads or makes it")
            return
        rule = rule_of(layer) if is_layer else operations.RULES.get(name)
        if not is_layer:
            call = self._as_tensors(call, rule not in operations.OF_VARIABLES)
        made: Made = None
        if rule is not None and call.inputs and call.outputs:
            why = why_not_followed(call) if is_layer else None
            made = why or _checked(rule(atoms, layer, call), call)
            if isinstance(made, np.ndarray) and _reads_activity(layer):
                reason = f"an activity regularizer of '{layer.name}' reads it"
                atoms.settle(made, reason)
                made = atoms.constant(call.outputs[0], reason)
        elif self._all_fixed(call):
            why = atoms.reasons[atoms.of(call.inputs[0]).ravel()[0]]
        by_numbers = made is None and why is None
        if by_numbers:
            made = self._by_numbers(call)
        if made is None:
            name = f"{name} '{layer.name}'" if is_layer else f"the operation {name}"
            self._end(call, why or f"{name} mixes, reads or makes it")
        elif isinstance(made, str):
            self._end(call, made)
        else:
            arrays = made if isinstance(made, list) else [made]
            for tensor, of_tensor in zip(call.outputs, arrays, strict=True):
                atoms.of_tensor[id(tensor)] = of_tensor
            if by_numbers or not _keeps_zeros(call):
                atoms.alive += arrays
            if type(layer) is keras.layers.Reshape or id(layer) in self._in_graphs:
                self._sizes(layer, arrays[0])

    def _as_tensors(self, call: Call, whole: bool) -> Call:
        """Puts tensors in the place of values of variables.

        They have units along the axis of a vector, or the last axis of others. Of a
        vector a layer may have made another shape: it is told by its numbers. `whole`:
        whether variables themselves are replaced, too.
        """
        known: dict[int, keras.KerasTensor] = {}
        for held in call.arguments:
            if isinstance(held, keras.KerasTensor) or not has_places(held):
                continue
            if isinstance(held, keras.Variable):
                axes, variable = _wide(held.shape), held if whole else None
            else:
                array = keras.ops.convert_to_numpy(held)
                axes = [a for a in range(array.ndim) if varies(array, a)]
                variable = self._vector(array, axes)
            if variable is not None:
                own = _wide(variable.shape)[-1]
                along = self.atoms.along_variable(variable, own, "own", None)
                made = keras.KerasTensor(tuple(held.shape), "float32")
                known[id(held)] = made
                self._kept.append(made)  # tensors are told apart by their `id`
                placed = at_axis(along, axes[-1], len(held.shape))
                self.atoms.of_tensor[id(made)] = placed
        if not known:
            return call
        given = keras.tree.map_structure(
            lambda leaf: known.get(id(leaf), leaf), call.given
        )
        return dataclasses.replace(call, given=given)

    def _vector(self, array: np.ndarray, axes: Sequence[int]) -> Any:
        """The variable with the numbers of an array along its one axis, or None."""
        if len(axes) != 1:
            return None
        numbers = np.moveaxis(array, axes[0], 0).reshape(array.shape[axes[0]], -1)[:, 0]
        for layer in self.layers:
            for variable in own_weights(layer)[0]:
                shape = variable.shape
                if len(numbers) in shape and math.prod(shape) == len(numbers):
                    value = keras.ops.convert_to_numpy(variable.value).ravel()
                    if (value == numbers).all():
                        self._met[id(variable)] += 1
                        return variable
        return None

    def _all_fixed(self, call: Call) -> bool:
        held = (
            isinstance(call.operation, keras.layers.Layer) and call.operation.variables
        )
        fixed = all(self.atoms.are_fixed(self.atoms.of(t)) for t in call.inputs)
        return bool(call.inputs) and fixed and not held

    def _by_numbers(self, call: Call) -> Made:
        """What acts on each unit of the last axis alone, as numbers say."""
        layer: Any = call.operation
        arrays = [self.atoms.of(tensor) for tensor in call.inputs]
        if not arrays or len(call.outputs) != 1:
            return None
        modes: tuple[bool | None, ...] = (None,)
        if isinstance(layer, keras.layers.Layer):
            theirs = type(layer).__module__.startswith("keras.")
            built = not theirs and type(layer).build is not keras.layers.Layer.build
            if layer.variables or sublayers(layer) or built:
                return None
            modes = (False, True) if takes_training(layer) else (None,)
        if any(array.size > array.shape[-1] for array in arrays):
            return None
        if any(isinstance(a, keras.Variable) for a in call.arguments):
            return None
        for training in modes:
            function = call.function(training)
            why = self.numbers.make(function, call.inputs, call.outputs)
            if why is not None:
                name = type(layer).__name__
                return f"{name} {why}"
        first = max(arrays, key=np.size)
        for other in arrays:
            if other is not first:
                self.atoms.join(first, other)
        return first.reshape((1,) * (len(call.outputs[0].shape) - 1) + (-1,))

    def _end(self, call: Call, reason: str) -> None:
        """Settles all that a call is given, holds and makes."""
        atoms = self.atoms
        for tensor in call.inputs:
            atoms.settle(atoms.of(tensor), reason)
        held = [a for a in call.arguments if isinstance(a, keras.Variable)]
        operation = call.operation
        if not isinstance(operation, FFNLayer):  # which numbers its neurons itself
            held += getattr(operation, "variables", [])
        for variable in held:
            atoms.settle_variable(variable, reason)
        for tensor in call.outputs:
            atoms.of_tensor[id(tensor)] = atoms.constant(tensor, reason)

    def _entrance(
        self, model: keras.layers.Layer, given: Sequence[keras.KerasTensor]
    ) -> None:
        inputs = input_layers(model)
        if len(inputs) == len(given):
            for layer, tensor in zip(inputs, given, strict=True):
                array, rank = self.atoms.of(tensor), len(layer.batch_shape)
                if rank == array.ndim + 1:  # Keras adds an axis, or removes one
                    array = array[..., None]
                elif rank == array.ndim - 1:
                    array = array.take(0, -1)
                self._sizes(layer, array)
            return
        for tensor in given:
            why = "it enters a nested model whose inputs are not known"
            self.atoms.settle(self.atoms.of(tensor), why)

    def _specified(self, layer: keras.layers.Layer, given: keras.KerasTensor) -> None:
        """What enters a user's layer that says in an `InputSpec` what it takes."""
        if id(given) in self.atoms.of_tensor:
            self._sizes(layer, self.atoms.of(given))
            if makes_its_spec(layer):
                self.atoms.settle(self.atoms.of(given), _CONSTRUCTED)

    def _sizes(self, layer: Any, atoms: np.ndarray) -> None:
        """Notes a layer that knows the number of units of what it makes or takes."""
        if atoms.size == 1:
            return
        if id(layer) in self._held:
            self.sized.append((layer, atoms))
        else:  # made in a `call`, of a number that nobody can change
            shape = getattr(layer, "target_shape", None)
            where = f"a Reshape to {shape}" if shape else "an InputSpec"
            why = f"code holds its number, in {where}"
            self.atoms.settle(atoms, why)


#: Regularizers to which each unit counts alone, and one of zeros not at all.
_SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
#: What makes other numbers of zeros; and what does where one argument is a number.
_NOT_OF_ZEROS = frozenset(
    """AlphaDropout Clip Exp GaussianNoise GroupNormalization HardSigmoid LogSigmoid
    LogSoftmax Logsumexp Pad Sigmoid Softmax Softplus Where""".split()
)
_OF_TENSORS = frozenset("Add Maximum Minimum Subtract".split())


def _checked(made: Made, call: Call) -> Made:
    """Returns what a rule made, or in words that it does not fit the outputs."""
    if made is None or isinstance(made, str):
        return made
    ranks = [array.ndim for array in (made if isinstance(made, list) else [made])]
    wanted = [len(tensor.shape) for tensor in call.outputs]
    said = f"its rule made arrays of {ranks} axes for outputs of {wanted}"
    return made if ranks == wanted else said


def _keeps_zeros(call: Call) -> bool:
    """Returns whether an operation makes 0 of a unit of zeros."""
    operation: Any = call.operation
    name = type(operation).__name__
    activation = getattr(dense_of(operation) or operation, "activation", None)
    if activation is not None:
        try:
            made = activation(keras.ops.zeros((1, 1)))
        except Exception:  # as of a layer that was built for another shape
            return False
        return not keras.ops.convert_to_numpy(made).any()
    if name == "BatchNormalization":
        return operation.scale
    tensors = all(isinstance(a, keras.KerasTensor) for a in call.arguments)
    return name not in _NOT_OF_ZEROS and (tensors or name not in _OF_TENSORS)


def _wide(shape: Sequence[int]) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size > 1]


def _reads_activity(layer: Any) -> bool:
    """Returns whether a regularizer mixes what a layer makes."""
    regularizer = getattr(layer, "activity_regularizer", None)
    return regularizer is not None and not isinstance(regularizer, _SUMS)
