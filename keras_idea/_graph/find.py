"""Finds what can be pruned in a model, by following its tensors through all layers."""

import collections
import dataclasses
import weakref
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph import operations
from keras_idea._graph.atoms import Atoms, Role, at_axis
from keras_idea._graph.group import Axes, Axis, Group, Sized
from keras_idea._graph.layers import (
    ATTENTION,
    dense_of,
    embeds,
    looked_into,
    rule_of,
    slides,
    uses,
    why_not_followed,
)
from keras_idea._groups.entries import Labels
from keras_idea._groups.kinds import CHANNELS, FEATURES, KV_GROUPS, NEURONS, KindName
from keras_idea._keras.channels import input_layers, is_stock_layer
from keras_idea._keras.layers import (
    is_built,
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

_OUTPUT = "it is an output of the model"
_INPUT = "an input of the model"
_END = "it enters or leaves a layer that cannot be looked into"
_UNBUILT = (
    "the model is not built, so its `call` is not known: call it on data (or remove "
    "`call`, if only `train_step` calls the layers)"
)
_HELD = (
    "the model has no `call` that calls it, so what reads it in `train_step` is not "
    "known: put the layers in a Sequential or functional model, and call that"
)
#: What stands for a height or width that a model leaves open: it may be halved often.
OPEN_SIZE = 128


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """What was found in a model.

    Attributes:
        groups: list of `Group`, of all kinds, in the model's order.
        left_out: dict, path of a layer -> why what it makes stays.
        uses: dict, `id` of a kernel -> how often it is used for one sample; empty for
            a model without convolutions.
        whole: `Axes` of the model.
    """

    groups: list[Group]
    left_out: dict[str, str]
    uses: dict[int, int]
    whole: Axes


# What was found in a model, and of which layers it was.
_FOUND: weakref.WeakKeyDictionary[keras.layers.Layer, tuple[list, Graph]] = (
    weakref.WeakKeyDictionary()
)


def graph_of(model: keras.layers.Layer) -> Graph:
    """Returns the graph of a model, which is followed once while its layers stay."""
    layers = list(walk(model))
    present: list = [(id(layer), layer.built) for layer in layers]
    present += [getattr(layer, "lora_enabled", None) for layer in layers]
    present += [getattr(layer, "quantization_mode", None) for layer in layers]
    known = _FOUND.get(model)
    if known is None or known[0] != present or not known[1].whole.are_current:
        known = _FOUND[model] = present, _graph_of(model, layers)
    return known[1]


def _graph_of(model: keras.layers.Layer, layers: list[keras.layers.Layer]) -> Graph:
    built = [layer for layer in layers if layer.built]
    makers = [part for part in built if dense_of(part) or slides(part)]
    if not is_built(student_of(model)):
        left_out = {layer.path: _UNBUILT for layer in makers}
        return Graph([], left_out, {}, Axes([], []))
    if not makers and not any(_has_matrix(layer) for layer in built):
        return Graph([], {}, {}, Axes([], []))
    recordings = [followed(model)]
    if has_code(model):
        recordings.append(followed(model, training=True))
    follow = _Follow(model)
    for recording in recordings:
        follow.whole(recording)
    counts: collections.Counter[int] = collections.Counter()
    if any(slides(layer) for layer in built):
        for call in recordings[0].calls:
            if slides(call.operation) or type(call.operation) is keras.layers.Dense:
                counts.update(uses(call))
    return _Found(follow, recordings, dict(counts)).graph()


def _has_matrix(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer of a user's own class holds a kernel."""
    if is_stock_layer(layer) or isinstance(layer, FFNLayer):
        return False
    return any(len(v.shape) > 1 for v in layer._trainable_variables)


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
    """Returns whether a model holds layers with a `call` that is nobody's known."""
    return any(
        looked_into(layer)
        and not isinstance(layer, (Functional, keras.Sequential, *ATTENTION))
        and not type(layer).__module__.startswith("keras_hub.")
        for layer in walk(model)
    )


def compared_by_distillers(model: keras.layers.Layer) -> list[str]:
    """Names of a student's layers whose outputs a loss compares with its teacher's."""
    distillers = [m for m in walk(model) if isinstance(m, keras.distillation.Distiller)]
    losses = [loss for each in distillers for loss in each.distillation_losses]
    names = [getattr(loss, "student_layer_name", None) for loss in losses]
    return [name for name in names if name]


class _Follow:
    """Follows the calls of a model."""

    def __init__(self, model: keras.layers.Layer) -> None:
        self.atoms = Atoms()
        self.layers = list(walk(student_of(model)))
        self.sized: list[tuple[Any, np.ndarray]] = []
        #: dict, path of a layer that is not followed -> why.
        self.unseen: dict[str, str] = {}
        self.numbers = PrunedNumbers()
        #: Atoms in tensors where a unit of zeros may not be 0.
        self.alive: list[np.ndarray] = []
        #: `id`s of the operations Reshape in graphs, which know sizes as layers do.
        self._in_graphs = {
            id(operation)
            for layer in self.layers
            if isinstance(layer, Functional)
            for operation in layer.operations
            if type(operation).__name__ == "Reshape"
        }
        self._held = set(map(id, self.layers)) | self._in_graphs
        self._compared = compared_by_distillers(model)
        self._zero: set[int] = set()
        self._kept: list[keras.KerasTensor] = []
        self._told: set[int] = set()  # vectors that code has read, told by their values

    def whole(self, recording: Recording) -> None:
        """Goes through a recording, and settles what enters and leaves it."""
        atoms, outputs = self.atoms, set(map(id, recording.outputs))
        for tensor in recording.inputs:
            atoms.of_tensor[id(tensor)] = atoms.constant(tensor, _INPUT)
        for call in recording.calls:
            self._call(call)
            kernel = dense_of(call.operation) or slides(call.operation)
            if kernel and not outputs.isdisjoint(map(id, call.outputs)):
                self._settle_made(call)
        for reason, tensors in (
            (_OUTPUT, recording.outputs),
            (_END, recording.ends),
            ("a loss of the Distiller reads it", self._compared_in(recording)),
        ):
            for tensor in tensors:
                if id(tensor) in atoms.of_tensor:
                    atoms.settle(atoms.of(tensor), reason)
        for model, given in recording.entrances:
            self._entrance(model, given)
        for variable in recording.read:
            if id(variable) in self._told:
                continue
            atoms.settle_variable(variable, "a layer computes with its kernel")
        for holder in recording.opaque:
            self._not_followed(holder, why_opaque(holder, recording))
        for holder in recording.holders:
            self._not_followed(holder, _HELD)

    def _not_followed(self, holder: keras.layers.Layer, reason: str) -> None:
        """Settles what a layer holds and calls itself, in a way that is not known."""
        for part in (holder, *sublayers(holder)):
            if part is holder or not looked_into(part):
                for variable in part._trainable_variables:
                    self.atoms.settle_variable(variable, reason)
                if part is not holder:
                    self._unseen(part, reason)

    def _call(self, call: Call) -> None:
        atoms, layer = self.atoms, call.operation
        is_layer = isinstance(layer, keras.layers.Layer)
        name = type(layer).__name__
        why = None
        if isinstance(layer, FFNLayer):
            self._end(call, f"{name} '{layer.name}' reads or makes it", False)
            return
        rule = rule_of(layer) if is_layer else operations.RULES.get(name)
        if not is_layer:
            call = self._as_tensors(call, rule not in operations.OF_VARIABLES)
        made: operations.Made = None
        if rule is not None and call.inputs and call.outputs:
            why = why_not_followed(call) if is_layer else None
            made = why or rule(atoms, layer, call)
            if isinstance(made, np.ndarray) and _reads_activity(layer):
                reason = f"an activity regularizer of '{layer.name}' reads it"
                atoms.settle(made, reason)
                made = atoms.constant(call.outputs[0], reason)
        elif self._all_fixed(call):
            why = atoms.reasons[atoms.of(call.inputs[0]).ravel()[0]]
        if made is None and why is None:
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
            self._note_zeros(call, arrays)
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
            if isinstance(held, keras.Variable):
                wide = [a for a, size in enumerate(held.shape) if size > 1]
                if whole and wide:
                    along = self.atoms.along_variable(held, wide[-1], "own", None)
                    known[id(held)] = self._stand_in(held, along, wide[-1])
            elif operations.has_places(held) and not isinstance(
                held, keras.KerasTensor
            ):
                array = keras.ops.convert_to_numpy(held)
                axes = [a for a in range(array.ndim) if _varies(array, a)]
                variable = self._vector(array, axes)
                if variable is not None:
                    axis = int(np.argmax(variable.shape))
                    along = self.atoms.along_variable(variable, axis, "own", None)
                    known[id(held)] = self._stand_in(held, along, axes[0])
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
            for variable in layer._trainable_variables:
                sizes = [size for size in variable.shape if size > 1]
                if sizes == [len(numbers)]:
                    value = keras.ops.convert_to_numpy(variable.value).ravel()
                    if (value == numbers).all():
                        self._told.add(id(variable))
                        return variable
        return None

    def _stand_in(self, held: Any, along: np.ndarray, axis: int) -> keras.KerasTensor:
        made = keras.KerasTensor(tuple(held.shape), "float32")
        self._kept.append(made)  # tensors are told apart by their `id`
        self.atoms.of_tensor[id(made)] = at_axis(along, axis, len(held.shape))
        return made

    def _all_fixed(self, call: Call) -> bool:
        held = (
            isinstance(call.operation, keras.layers.Layer) and call.operation.variables
        )
        fixed = all(self.atoms.are_fixed(self.atoms.of(t)) for t in call.inputs)
        return bool(call.inputs) and fixed and not held

    def _by_numbers(self, call: Call) -> operations.Made:
        """What acts on each unit of the last axis alone, as numbers say."""
        layer: Any = call.operation
        arrays = [self.atoms.of(tensor) for tensor in call.inputs]
        if not arrays or len(call.outputs) != 1:
            return None
        modes: tuple[bool | None, ...] = (None,)
        if isinstance(layer, keras.layers.Layer):
            theirs = type(layer).__module__.startswith("keras.")
            built = not theirs and type(layer).build is not keras.layers.Layer.build
            if layer.variables or sublayers(layer) or built or _looks_across(layer):
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

    def _note_zeros(self, call: Call, arrays: Sequence[np.ndarray]) -> None:
        """Notes tensors in which a unit of zeros is 0, and the atoms of others."""
        operation: Any = call.operation
        dense, name = dense_of(operation), type(operation).__name__
        zeros = [id(tensor) in self._zero for tensor in call.inputs]
        if dense is not None:
            zero = _of_zero(dense.activation)
        elif isinstance(operation, keras.layers.Activation):
            zero = all(zeros) and _of_zero(operation.activation)
        elif name == "Multiply":
            zero = any(zeros)
        elif name == "BatchNormalization":
            zero = operation.scale or (not operation.center and all(zeros))
        else:
            tensors = all(isinstance(a, keras.KerasTensor) for a in call.arguments)
            zero = all(zeros) and name not in _NOT_OF_ZEROS
            zero = zero and (tensors or name not in _OF_TENSORS)
        for tensor, array in zip(call.outputs, arrays, strict=True):
            if zero:
                self._zero.add(id(tensor))
            else:
                self.alive.append(np.unique(array))

    def _end(self, call: Call, reason: str, unseen: bool = True) -> None:
        """Settles all that a call is given, holds and makes."""
        atoms = self.atoms
        for tensor in call.inputs:
            atoms.settle(atoms.of(tensor), reason)
        held = [a for a in call.arguments if isinstance(a, keras.Variable)]
        if isinstance(call.operation, keras.layers.Layer) and unseen:
            held += call.operation.variables
            self._unseen(call.operation, reason)
        for variable in held:
            atoms.settle_variable(variable, reason)
        for tensor in call.outputs:
            atoms.of_tensor[id(tensor)] = atoms.constant(tensor, reason)

    def _unseen(self, holder: keras.layers.Layer, reason: str) -> None:
        """Notes the layers with kernels in a layer that is not looked into."""
        for part in walk(holder):
            if slides(part) or dense_of(part) is part:
                self.unseen.setdefault(part.path, reason)

    def _settle_made(self, call: Call) -> None:
        """Has the first reason of what makes an output be that, not a softmax in it."""
        for place in list(self.atoms.places.values()):
            if call.operation in place.layers and place.role == "makes":
                self.atoms.settle(place.atoms, _OUTPUT, first=True)

    def _entrance(
        self, model: keras.layers.Layer, given: Sequence[keras.KerasTensor]
    ) -> None:
        inputs = input_layers(model)
        if len(inputs) == len(given):
            for layer, tensor in zip(inputs, given, strict=True):
                self._sizes(layer, self.atoms.of(tensor))
            return
        for tensor in given:
            why = "it enters a nested model whose inputs are not known"
            self.atoms.settle(self.atoms.of(tensor), why)

    def _sizes(self, layer: Any, atoms: np.ndarray) -> None:
        """Notes a layer that knows the number of units of what it makes."""
        if atoms.size == 1:
            return
        if id(layer) in self._held:
            self.sized.append((layer, atoms))
        else:  # made in a `call`, of a number that nobody can change
            shape = getattr(layer, "target_shape", None)
            why = f"code holds its number, in a Reshape to {shape}"
            self.atoms.settle(atoms, why)

    def _compared_in(self, recording: Recording) -> list[keras.KerasTensor]:
        made = [(call.operation, call.outputs) for call in recording.calls]
        made += list(recording.returned.items())
        named = [ts for layer, ts in made if layer.name in self._compared]
        return [tensor for tensors in named for tensor in tensors]


#: Regularizers to which each unit counts alone, and one of zeros not at all.
_SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
#: What makes other numbers of zeros; and what does where one argument is a number.
_NOT_OF_ZEROS = frozenset(
    """AlphaDropout Clip Exp GaussianNoise GroupNormalization HardSigmoid LogSigmoid
    Rescaling Sigmoid Softmax Softplus Where""".split()
)
_OF_TENSORS = frozenset("Add Maximum Minimum Subtract".split())


def _of_zero(activation: Any) -> bool:
    """Returns whether an activation makes 0 of 0."""
    try:
        made = activation(keras.ops.zeros((1, 1)))
    except Exception:  # as of a layer that was built for another shape
        return False
    return not keras.ops.convert_to_numpy(made).any()


def _reads_activity(layer: Any) -> bool:
    """Returns whether a regularizer mixes what a layer makes."""
    regularizer = getattr(layer, "activity_regularizer", None)
    return regularizer is not None and not isinstance(regularizer, _SUMS)


def _looks_across(layer: Any) -> bool:
    """Returns whether a layer looks for numbers which an example would not have."""
    return isinstance(layer, keras.layers.Masking)


def why_opaque(holder: keras.layers.Layer, recording: Recording) -> str:
    """Returns why it is not known what a layer does with those in it."""
    cause, error = recording.causes.get(holder, (holder, recording.opaque[holder]))
    return (
        f"'{holder.name}', which holds it, cannot be called on a symbolic batch of 2: "
        f"{type(cause).__name__} '{cause.name}' raised {what_was_raised(error)}"
    )


class _Found:
    """Makes groups of what was followed: units that lie alike."""

    def __init__(
        self, follow: _Follow, recordings: Sequence[Recording], uses: dict[int, int]
    ) -> None:
        self.follow, self.recordings, self.uses = follow, recordings, uses
        self.order = {
            id(layer): place
            for place, layer in reversed(list(enumerate(follow.layers)))
        }
        atoms = follow.atoms
        root, _ = atoms.units()
        for layer, array in follow.sized:
            axes = [a for a in range(array.ndim) if _varies(root[array], a)]
            if len(axes) > 1:
                why = f"'{layer.name}' spreads it over several axes"
                atoms.settle(array, why)
        self.root, self.why = atoms.units()
        self.normalized: dict[int, str] = {}
        for array, why in atoms.normalized:
            for unit in np.unique(self.root[array]).tolist():
                self.normalized.setdefault(unit, why)
        # Of heads, queries meet keys, and then values.
        met = [_units(self.root, arrays) for arrays in atoms.attended]
        times = collections.Counter(unit for units in met for unit in units)
        self.attended = {unit for unit, count in times.items() if count > 1}
        self.met = set(times) - self.attended
        self.alive = _units(self.root, follow.alive)
        holders = {
            id(variable): layer
            for layer in follow.layers
            for variable in layer._trainable_variables
        }
        self.axes = {}
        for key, p in atoms.places.items():
            held = holders.get(id(p.variable))
            layers = p.layers or ([held] if held is not None else [])
            labels = Labels(self.root[p.atoms])
            self.axes[key] = Axis(p.variable, p.axis, p.role, layers, labels)
        sized = []
        for layer, array in follow.sized:
            units = self.root[array]
            for axis in range(1, array.ndim):
                if _varies(units, axis):
                    first = [0] * array.ndim
                    first[axis] = slice(None)
                    sized.append(Sized(layer, axis - 1, units[tuple(first)]))
        self.whole = Axes(list(self.axes.values()), sized)

    def graph(self) -> Graph:
        """Returns the graph."""
        alike: dict[tuple, list[int]] = collections.defaultdict(list)
        for unit, lies in self._signatures().items():
            if unit not in self.why:
                alike[tuple(lies)].append(unit)
        groups: list[Group] = []
        taken: set[int] = set()  # owners: a group's state is known by its layer
        for where, together in alike.items():
            ours = [self.axes[key] for key, _ in where]
            kind = self._kind(ours, together)
            reason = _why_not(kind, ours, together)
            if together[0] in self.met and kind != FEATURES:
                reason = "an attention multiplies it"
            owner = None if reason else self._owner(kind, ours)
            if reason is None and id(owner) in taken:
                reason = "the units of one layer are used in several ways"
            if reason is not None:
                self.why |= dict.fromkeys(together, reason)
                continue
            taken.add(id(owner))
            groups.append(self._group(kind, ours, together, owner))
            if kind == FEATURES:
                self.why |= dict.fromkeys(
                    together, self.normalized.get(together[0], "an embedding makes it")
                )
        return Graph(groups, self._left_out(), self.uses, self.whole)

    def _signatures(self) -> dict[int, list[tuple[Hashable, int]]]:
        """By the unit, which axes it is in, and how often."""
        found: dict[int, list] = collections.defaultdict(list)
        for key, place in self.follow.atoms.places.items():
            units, often = np.unique(self.root[place.atoms], return_counts=True)
            for unit, count in zip(units.tolist(), often.tolist(), strict=True):
                found[unit].append((key, count))
        return found

    def _kind(self, axes: Sequence[Axis], units: Sequence[int]) -> KindName:
        if units[0] in self.normalized or any(embeds(axis.layer) for axis in axes):
            return FEATURES
        if units[0] in self.attended:
            return KV_GROUPS
        convolves = any(slides(axis.layer) for axis in axes)
        return CHANNELS if convolves else NEURONS

    def _owner(self, kind: KindName, axes: Sequence[Axis]) -> Any:
        """The layer by which a group is known: what holds heads, or a first maker."""
        makers = self._sorted(kind, axes, "makes")
        if kind != KV_GROUPS:
            return makers[0].layer
        wanted = {id(a.layer) for a in axes if a.role in ("makes", "reads")}
        holders = [
            layer
            for layer in self.follow.layers
            if not _is_model(layer) and wanted <= set(map(id, walk(layer)))
        ]
        return holders[-1] if holders else makers[0].layer

    def _sorted(self, kind: KindName, axes: Sequence[Axis], role: Role) -> list[Axis]:
        """Channels in the order of the data, others in that of layers, gates last."""
        found = [axis for axis in axes if axis.role == role]
        if kind == CHANNELS:
            return found
        linear = self._multiplied() if kind == NEURONS and role == "makes" else set()
        return sorted(
            found,
            key=lambda axis: (
                id(axis.layer) in linear,
                self.order.get(id(axis.layer), len(self.order)),
            ),
        )

    def _multiplied(self) -> set[int]:
        """The `id`s of layers whose outputs are multiplied as they are: gates."""
        if not hasattr(self, "_gates"):
            calls = [call for each in self.recordings for call in each.calls]
            tensors = {
                id(tensor)
                for call in calls
                if type(call.operation).__name__ == "Multiply"
                for tensor in call.inputs
            }
            self._gates = {
                id(dense)
                for call in calls
                if (dense := dense_of(call.operation)) is not None
                and dense.activation is keras.activations.linear
                and any(id(tensor) in tensors for tensor in call.outputs)
            }
        return self._gates

    def _group(
        self, kind: KindName, axes: Sequence[Axis], units: list[int], owner: Any
    ) -> Group:
        roles: tuple[Role, ...] = ("makes", "reads")
        ordered = [axis for role in roles for axis in self._sorted(kind, axes, role)]
        ordered += [axis for axis in axes if axis.role not in roles]
        return Group(
            kind,
            axes if kind == CHANNELS else ordered,
            np.array(units),
            self.whole,
            owner,
            preserves_zero=kind == KV_GROUPS
            or (kind == NEURONS and self.alive.isdisjoint(units)),
            shown=all(len(a.layers) == 1 for a in axes if a.role == "reads"),
        )

    def _left_out(self) -> dict[str, str]:
        """By the path of a layer, why what it makes stays; heads by what holds them."""
        left_out = dict(self.follow.unseen)
        held = {layer.path for layer in self.follow.layers if not _is_model(layer)}
        for place in self.follow.atoms.places.values():
            if place.role != "makes" or not place.layers or embeds(place.layers[0]):
                continue
            units = self.root[place.atoms].tolist()
            reasons = [self.why.get(unit) for unit in units]
            given = [reason for reason in reasons if reason]
            if given:
                some = f" ({len(given)} of {len(reasons)})"
                share = some if len(given) < len(reasons) else ""
                path = place.layers[0].path
                holder = path.rpartition("/")[0]
                if holder in held and self.attended.issuperset(units):
                    path = holder
                left_out.setdefault(path, given[0] + share)
        for layer in self.follow.layers:
            if layer.built and (slides(layer) or dense_of(layer) is layer):
                if layer.path not in left_out and not self._is_called(layer):
                    left_out[layer.path] = "the model's `call` does not call it"
        return left_out

    def _is_called(self, layer: Any) -> bool:
        return any(layer in place.layers for place in self.follow.atoms.places.values())


def _is_model(layer: Any) -> bool:
    return isinstance(layer, (Functional, keras.Sequential))


def _varies(units: np.ndarray, axis: int) -> bool:
    return bool((units != units.take([0], axis)).any())


def _units(root: np.ndarray, arrays: Sequence[np.ndarray]) -> set[int]:
    joined = np.concatenate([np.zeros(0, int), *(array.ravel() for array in arrays)])
    return set(np.unique(root[joined]).tolist()) if len(joined) else set()


def _why_not(kind: KindName, axes: Sequence[Axis], units: list[int]) -> str | None:
    """Why some units are no group; None if they are."""
    makers = [axis for axis in axes if axis.role == "makes"]
    readers = [axis for axis in axes if axis.role == "reads"]
    if not makers:
        return "nothing with weights makes it"
    if not readers:
        return "nothing with weights reads it"
    if len(units) < 2:
        return "all its units are tied to one another"
    made = {id(axis.variable) for axis in makers}
    if kind == NEURONS and any(id(axis.variable) in made for axis in readers):
        return "a layer reads the neurons that it makes"
    if kind == KV_GROUPS and any(slides(axis.layer) for axis in axes):
        return "convolutions make its heads"
    return None
