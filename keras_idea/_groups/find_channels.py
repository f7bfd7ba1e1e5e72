"""Finds the channels of a model, by following its tensors through all its layers."""

import collections
import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._groups.atoms import Atoms, Place
from keras_idea._groups.channel_operations import by_name
from keras_idea._groups.channel_rules import RULES, uses, why_not_followed
from keras_idea._groups.channels import Axis, ChannelGroup, ChannelMap, Sized
from keras_idea._groups.dense import compared_by_distillers
from keras_idea._groups.entries import Labels
from keras_idea._keras.channels import (
    SLIDING,
    input_layers,
    is_stock_layer,
)
from keras_idea._keras.layers import student_of, walk
from keras_idea._keras.models import Functional
from keras_idea._keras.symbolic import Call, Recording, open_sizes, record

_OUTPUT = "it is an output of the model"
_END = "it enters or leaves a layer that cannot be looked into"
#: What stands for a height or width that a model leaves open: it may be halved often.
OPEN_SIZE = 128


@dataclasses.dataclass(frozen=True)
class FoundChannels:
    """What was found in a model.

    Attributes:
        groups: list of `ChannelGroup`, in the model's order.
        left_out: dict, path of a convolution -> why what it makes stays.
        uses: dict, `id` of a kernel -> how often it is used for one sample.
    """

    groups: list[ChannelGroup]
    left_out: dict[str, str]
    uses: dict[int, int]


def slides(layer: object) -> bool:
    """bool, whether a layer is a convolution of a kind that is known."""
    return type(layer) in SLIDING


def looked_into(layer: keras.layers.Layer) -> bool:
    """Whether a layer is more than one operation: models, and a user's layers."""
    if isinstance(layer, keras.Model):
        return True
    return type(layer) not in RULES and not is_stock_layer(layer)


def followed(model: keras.layers.Layer, training: bool = False) -> Recording:
    """What is called in a model, layer by layer."""
    with open_sizes(OPEN_SIZE):
        return record(student_of(model), looked_into, training)


def find_channel_groups(model: keras.layers.Layer) -> FoundChannels:
    """Finds the channels of a model's convolutions that can be cut out.

    Example:
    >>> layers = [keras.Input((8, 8, 3)), keras.layers.Conv2D(6, 3)]
    >>> layers += [keras.layers.Conv2D(4, 3)]
    >>> found = find_channel_groups(keras.Sequential(layers))
    >>> [group.hidden_dim for group in found.groups]
    [6]
    """
    recordings = [followed(model)]
    if has_code(model):
        recordings.append(followed(model, training=True))
    follow = _Follow(model)
    for recording in recordings:
        follow.whole(recording)
    counts: collections.Counter[int] = collections.Counter()
    for call in recordings[0].calls:
        if slides(call.operation) or type(call.operation) is keras.layers.Dense:
            counts.update(uses(call))
    return _found(follow, dict(counts))


def has_code(model: keras.layers.Layer) -> bool:
    """Whether a model holds layers, or is one, with a `call` that is not Keras's."""
    return any(
        looked_into(layer) and not isinstance(layer, (Functional, keras.Sequential))
        for layer in walk(model)
    )


class _Follow:
    """Follows the calls of a model."""

    def __init__(self, model: keras.layers.Layer) -> None:
        self.atoms = Atoms()
        self.sized: list[tuple[Any, int, np.ndarray]] = []
        #: dict, path of a convolution that is not followed -> why.
        self.unseen: dict[str, str] = {}
        self._held = set(map(id, walk(model)))
        self._compared = compared_by_distillers(model)

    def whole(self, recording: Recording) -> None:
        """Goes through a recording, and settles what enters and leaves it."""
        atoms, outputs = self.atoms, set(map(id, recording.outputs))
        for tensor in recording.inputs:
            of_input = atoms.constant(tensor, "an input of the model")
            atoms.of_tensor[id(tensor)] = of_input
        for call in recording.calls:
            self._call(call)
            if not outputs.isdisjoint(map(id, call.outputs)) and slides(call.operation):
                self._settle_made(call)
        for reason, tensors in (
            (_OUTPUT, recording.outputs),
            (_END, recording.ends),
            ("a loss of the Distiller reads it", self._compared_in(recording)),
        ):
            for tensor in tensors:
                if id(tensor) in atoms.of_tensor:
                    atoms.settle(atoms.of_tensor[id(tensor)], reason)
        for model, given in recording.entrances:
            self._entrance(model, given)
        for variable in recording.read:
            atoms.settle_variable(variable, "a layer computes with its kernel")
        for holder in (*recording.opaque, *recording.holders):
            reason = f"'{holder.name}' is not followed"
            self._unseen(holder, reason)
            for variable in holder.variables:
                atoms.settle_variable(variable, reason)

    def _call(self, call: Call) -> None:
        atoms, layer = self.atoms, call.operation
        for tensor in call.inputs:
            if id(tensor) not in atoms.of_tensor:
                of_other = atoms.constant(tensor, "it comes from elsewhere")
                atoms.of_tensor[id(tensor)] = of_other
        is_layer = isinstance(layer, keras.layers.Layer)
        rule = RULES.get(type(layer)) if is_layer else by_name
        why = why_not_followed(call) if rule is not None and is_layer else None
        made = None
        if rule is not None and call.inputs and call.outputs and why is None:
            made = rule(atoms, layer, call)
        if made is None:
            name = type(layer).__name__
            name = f"{name} '{layer.name}'" if is_layer else f"the operation {name}"
            self._end(call, why or f"{name} mixes, reads or makes it")
        elif isinstance(made, str):
            self._end(call, made)
        elif isinstance(made, list):
            for tensor, of_tensor in zip(call.outputs, made, strict=True):
                atoms.of_tensor[id(tensor)] = of_tensor
        else:
            atoms.of_tensor[id(call.outputs[0])] = made
            if type(layer) is keras.layers.Reshape:
                self._sizes(layer, made)

    def _end(self, call: Call, reason: str) -> None:
        """Settles all that a call is given, holds and makes."""
        atoms = self.atoms
        for tensor in call.inputs:
            atoms.settle(atoms.of_tensor[id(tensor)], reason)
        held = [a for a in call.arguments if isinstance(a, keras.Variable)]
        if isinstance(call.operation, keras.layers.Layer):
            held += call.operation.variables
            self._unseen(call.operation, reason)
        for variable in held:
            atoms.settle_variable(variable, reason)
        for tensor in call.outputs:
            atoms.of_tensor[id(tensor)] = atoms.constant(tensor, reason)

    def _unseen(self, holder: keras.layers.Layer, reason: str) -> None:
        """Notes the convolutions in a layer that is not looked into."""
        for part in walk(holder):
            if slides(part):
                self.unseen.setdefault(part.path, reason)

    def _settle_made(self, call: Call) -> None:
        """The first reason of what a layer makes that ends in, say, a softmax."""
        for place in list(self.atoms.places.values()):
            if place.layer is call.operation and place.role == "makes":
                self.atoms.settle(place.atoms, _OUTPUT, first=True)

    def _entrance(
        self, model: keras.layers.Layer, given: Sequence[keras.KerasTensor]
    ) -> None:
        inputs = input_layers(model)
        if len(inputs) == len(given):
            for layer, tensor in zip(inputs, given, strict=True):
                self._sizes(layer, self.atoms.of_tensor[id(tensor)])
            return
        for tensor in given:
            why = "it enters a nested model whose inputs are not known"
            self.atoms.settle(self.atoms.of_tensor[id(tensor)], why)

    def _sizes(self, layer: Any, atoms: np.ndarray) -> None:
        """Notes a layer that knows the number of units of what it makes."""
        vary = [axis for axis in range(1, atoms.ndim) if atoms.shape[axis] > 1]
        if not vary:
            return
        if id(layer) in self._held:
            self.sized.append((layer, vary[0] - 1, atoms.reshape(-1)))
        else:  # made in a `call`, of a number that nobody can change
            shape = getattr(layer, "target_shape", None)
            why = f"code holds its number, in a Reshape to {shape}"
            self.atoms.settle(atoms, why)

    def _compared_in(self, recording: Recording) -> list[keras.KerasTensor]:
        made = [(call.operation, call.outputs) for call in recording.calls]
        made += list(recording.returned.items())
        named = [ts for layer, ts in made if layer.name in self._compared]
        return [tensor for tensors in named for tensor in tensors]


def _found(follow: _Follow, counts: dict[int, int]) -> FoundChannels:
    """The groups: units that lie equally often in the same variables."""
    places = follow.atoms.places
    root, why = follow.atoms.units()
    signature: dict[int, list[tuple[Hashable, int]]] = collections.defaultdict(list)
    for key, place in places.items():
        units, often = np.unique(root[place.atoms], return_counts=True)
        for unit, count in zip(units.tolist(), often.tolist(), strict=True):
            signature[unit].append((key, count))
    alike: dict[tuple, list[int]] = collections.defaultdict(list)
    for unit, lies in signature.items():
        if unit not in why:
            alike[tuple(lies)].append(unit)
    axes = {
        key: Axis(p.variable, p.axis, p.role, p.layer, Labels(root[p.atoms]))
        for key, p in places.items()
    }
    sized = [Sized(layer, axis, root[atoms]) for layer, axis, atoms in follow.sized]
    whole = ChannelMap(list(axes.values()), sized)
    groups: list[ChannelGroup] = []
    taken: set[int] = set()  # first makers: a group's state is known by its layer
    for where, together in alike.items():
        ours = [axes[key] for key, _ in where]
        reason = _why_not(ours, together, taken)
        if reason is not None:
            why |= dict.fromkeys(together, reason)
        elif any(slides(axis.layer) for axis in ours):
            group = ChannelGroup(ours, np.array(together), whole)
            groups.append(group)
            taken.add(id(group.makers[0]))
    left_out = {**follow.unseen, **_left_out(places, root, why)}
    return FoundChannels(groups, left_out, counts)


def _why_not(axes: Sequence[Axis], units: list[int], taken: set[int]) -> str | None:
    """Why some units are no group; None if they are."""
    makers = [axis.layer for axis in axes if axis.role == "makes"]
    if not makers:
        return "nothing with weights makes it"
    if all(axis.role != "reads" for axis in axes):
        return "nothing with weights reads it"
    if len(units) < 2:
        return "all its channels are tied to one another"
    if id(makers[0]) in taken:
        return "the channels of one layer are used in several ways"
    return None


def _left_out(
    places: dict[Hashable, Place], root: np.ndarray, why: dict[int, str]
) -> dict[str, str]:
    left_out = {}
    for place in places.values():
        if place.role != "makes" or not slides(place.layer):
            continue
        reasons = [why.get(unit) for unit in root[place.atoms].tolist()]
        given = [reason for reason in reasons if reason]
        if given:
            some = f" ({len(given)} of {len(reasons)})"
            share = some if len(given) < len(reasons) else ""
            left_out[place.layer.path] = given[0] + share
    return left_out
