"""Finds what can be pruned in a model: units that lie alike in its variables."""

import collections
import dataclasses
import functools
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph.atoms import Role, noted, varies
from keras_idea._graph.follow import OUTPUT, UNBUILT, Follow, followed, has_code
from keras_idea._graph.group import FFN, Axes, Sized
from keras_idea._graph.layers import RULES, embeds, slides, uses
from keras_idea._graph.stated import stated_ffns
from keras_idea._groups.cut import Axis
from keras_idea._groups.kinds import CHANNELS, FEATURES, KV_GROUPS, NEURONS, KindName
from keras_idea._keras.channels import dense_of, is_stock_layer
from keras_idea._keras.layers import is_built, own_weights, student_of, walk
from keras_idea._keras.models import Functional
from keras_idea._keras.symbolic import Recording
from keras_idea._layers.ffn import FFNLayer


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """What was found in a model.

    Attributes:
        groups: list of `FFN`, of all kinds, in the model's order.
        stated: list of `FFN` that are known without following the data.
        left_out: dict, path of a layer -> why what it makes stays.
        uses: dict, `id` of a kernel -> how often it is used for one sample; empty for
            a model without convolutions.
        whole: `Axes` of the model.
    """

    groups: list[FFN]
    left_out: dict[str, str]
    uses: dict[int, int]
    whole: Axes
    stated: list[FFN] = dataclasses.field(default_factory=list)

    @property
    def are_current(self) -> bool:
        """bool, whether all narrowing is known."""
        return all(
            axes.are_current
            for axes in (self.whole, *(ffn.whole for ffn in self.stated))
        )


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
    present += [RULES.get(type(layer)) for layer in layers]  # a user adds some
    known = _FOUND.get(model)
    if known is None or known[0] != present or not known[1].are_current:
        graph, stated = _graph_of(model, layers), stated_ffns(layers)
        known = _FOUND[model] = present, dataclasses.replace(graph, stated=stated)
    return known[1]


def _graph_of(model: keras.layers.Layer, layers: list[keras.layers.Layer]) -> Graph:
    built = [layer for layer in layers if layer.built]
    makers = [part for part in built if dense_of(part) or slides(part)]
    if not is_built(student_of(model)):
        left_out = {layer.path: UNBUILT for layer in makers}
        return Graph([], left_out, {}, Axes([]))
    if not makers and not any(_has_matrix(layer) for layer in built):
        return Graph([], {}, {}, Axes([]))
    recordings = [followed(model)]
    if has_code(model):
        recordings.append(followed(model, training=True))
    follow = Follow(model)
    for recording in recordings:
        follow.whole(recording)
    counts: collections.Counter[int] = collections.Counter()
    if any(slides(layer) for layer in built):
        for call in recordings[0].calls:
            if slides(call.operation) or type(call.operation) is keras.layers.Dense:
                counts.update(uses(call))
    found = _Found(follow, recordings)
    groups = found.groups()
    return Graph(groups, found.left_out(), dict(counts), found.whole)


def _has_matrix(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer of a user's own class holds a kernel."""
    if is_stock_layer(layer) or isinstance(layer, FFNLayer):
        return False
    return any(len(v.shape) > 1 for v in own_weights(layer)[0])


class _Found:
    """Makes groups of what was followed: units that lie alike."""

    def __init__(self, follow: Follow, recordings: Sequence[Recording]) -> None:
        self.layers, self.recordings = follow.layers, recordings
        self.order = {id(layer): i for i, layer in enumerate(follow.layers)}
        atoms = follow.atoms
        self.places, self.root = atoms.places, atoms.units()
        sized = []
        for layer, array in follow.sized:
            units = self.root[array]
            axes = [axis for axis in range(array.ndim) if varies(units, axis)]
            if len(axes) > 1:
                why = f"'{layer.name}' spreads it over several axes"
                atoms.settle(array, why)
            for axis in axes:
                along = np.moveaxis(units, axis, 0).reshape(units.shape[axis], -1)
                sized.append(Sized(layer, axis - array.ndim, along[:, 0]))
        self.why = atoms.why(self.root)
        self.normalized = noted(self.root, atoms.normalized)
        # Of heads, queries meet keys, and then values: the same units on both sides.
        times = np.zeros(len(self.root), int)
        self.met, self.alive = (np.zeros(len(self.root), bool) for _ in range(2))
        for arrays in atoms.attended:
            sides = [self.root[array] for array in arrays]
            times[functools.reduce(np.intersect1d, sides)] += 1
            self.met[np.concatenate(sides)] = True
        self.attended = times > 1
        self.met &= ~self.attended
        for array in atoms.alive:
            self.alive[self.root[array]] = True
        holders = {
            id(variable): layer
            for layer in follow.layers
            for variable in own_weights(layer)[0]
        }
        self.axes = {}
        for key, p in self.places.items():
            held = holders.get(id(p.variable))
            layers = p.layers or ([held] if held is not None else [])
            labels = self.root[p.atoms]
            self.axes[key] = Axis(p.variable, p.axis, p.role, layers, labels)
        self.whole = Axes(list(self.axes.values()), sized)

    def groups(self) -> list[FFN]:
        """Returns the groups; notes why other units stay."""
        groups: list[FFN] = []
        taken: set[int] = set()  # owners: a group's state is known by its layer
        for keys, units in self._alike():
            ours, first = [self.axes[key] for key in keys], units[0]
            kind = self._kind(ours, first)
            reason = _why_not(kind, ours, units)
            if reason is None and self.met[first] and kind != FEATURES:
                reason = "an attention multiplies it"
            owner = None if reason else self._owner(kind, ours)
            if reason is None and id(owner) in taken:
                reason = "the units of one layer are used in several ways"
            if reason is not None:
                self.why[units] = reason
                continue
            taken.add(id(owner))
            groups.append(self._group(kind, ours, units, owner))
            if kind == FEATURES and self.why[first] is None:
                self.why[units] = self.normalized[first] or "an embedding makes it"
        return groups

    def _alike(self) -> list[tuple[list[Hashable], np.ndarray]]:
        """Returns the units that lie equally often in the same axes, with these axes.

        In the order in which they are met.
        """
        shown = (self.why == OUTPUT) & self.normalized.astype(bool)
        free = shown | ~self.why.astype(bool)
        # The number of each unit's set: every axis parts those that it has from others.
        number, last, met = np.zeros(len(self.root), int), 0, []
        for key, place in self.places.items():
            units, often = np.unique(self.root[place.atoms], return_counts=True)
            units, often = units[free[units]], often[free[units]]
            if len(units):
                both = number[units] * (often.max() + 1) + often
                parts = np.unique(both, return_inverse=True)[1]
                number[units] = last + 1 + parts
                last += 1 + parts.max()
                met.append((key, units))
        alike: dict[int, tuple[list[Hashable], np.ndarray]] = {}
        for key, units in met:
            numbers = number[units]
            for each in dict.fromkeys(numbers.tolist()):
                if each not in alike:
                    alike[each] = [], units[numbers == each]
                alike[each][0].append(key)
        return list(alike.values())

    def _kind(self, axes: Sequence[Axis], unit: int) -> KindName:
        if self.normalized[unit] or any(embeds(axis.layer) for axis in axes):
            return FEATURES
        if self.attended[unit]:
            return KV_GROUPS
        convolves = any(slides(axis.layer) for axis in axes)
        return CHANNELS if convolves else NEURONS

    def _owner(self, kind: KindName, axes: Sequence[Axis]) -> Any:
        """The layer by which a group is known: what holds heads, or a first maker."""
        makers = self._sorted(kind, axes, "makes")
        if kind != KV_GROUPS:
            return makers[0].layer
        wanted = {id(a.layer) for a in axes if a.role in ("makes", "reads")}
        around = self._around.get(id(makers[0].layer), [])
        holders = [layer for layer, inside in around if wanted <= inside]
        return holders[-1] if holders else makers[0].layer

    @functools.cached_property
    def _around(self) -> dict[int, list[tuple[Any, set[int]]]]:
        """By the `id` of a layer, the layers that hold it, each with all it holds.

        No models: each attention in a model's own `call` has an owner of its own.
        """
        found: dict[int, list] = collections.defaultdict(list)
        for layer in self.layers:
            if not isinstance(layer, keras.Model):
                inside = set(map(id, walk(layer)))
                for part in inside:
                    found[part].append((layer, inside))
        return found

    def _sorted(self, kind: KindName, axes: Sequence[Axis], role: Role) -> list[Axis]:
        """Channels in the order of the data, others in that of layers, gates last."""
        found = [axis for axis in axes if axis.role == role]
        if kind == CHANNELS:
            return found
        linear = self._gates if kind == NEURONS and role == "makes" else set()
        return sorted(
            found,
            key=lambda axis: (
                id(axis.layer) in linear,
                self.order.get(id(axis.layer), len(self.order)),
            ),
        )

    @functools.cached_property
    def _gates(self) -> set[int]:
        """The `id`s of layers whose outputs are multiplied as they are."""
        calls = [call for each in self.recordings for call in each.calls]
        tensors = {
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
            and any(id(tensor) in tensors for tensor in call.outputs)
        }

    def _group(
        self, kind: KindName, axes: Sequence[Axis], units: np.ndarray, owner: Any
    ) -> FFN:
        roles: tuple[Role, ...] = ("makes", "reads")
        ordered = [axis for role in roles for axis in self._sorted(kind, axes, role)]
        ordered += [axis for axis in axes if axis.role not in roles]
        return FFN(
            kind,
            axes if kind == CHANNELS else ordered,
            units,
            self.whole,
            owner,
            preserves_zero=kind == KV_GROUPS
            or (kind == NEURONS and not self.alive[units].any()),
            shown=all(len(a.layers) == 1 for a in axes if a.role == "reads"),
        )

    def left_out(self) -> dict[str, str]:
        """By the path of a layer, why what it makes stays; heads by what holds them."""
        kinds = (Functional, keras.Sequential)
        held = {layer.path for layer in self.layers if not isinstance(layer, kinds)}
        places = collections.defaultdict(list)
        for key, axis in self.axes.items():
            for layer in axis.layers:
                places[id(layer)].append(self.places[key])
        left_out: dict[str, str] = {}
        for layer in self.layers:
            if not (layer.built and (slides(layer) or dense_of(layer) is layer)):
                continue
            path, ours = layer.path, places[id(layer)]
            if not ours:
                left_out.setdefault(path, "the model's `call` does not call it")
            # What is not followed has no roles.
            made = [p for p in ours if p.role == "makes"]
            for place in made or [p for p in ours if not p.layers]:
                units = self.root[place.atoms]
                given = [reason for reason in self.why[units] if reason]
                if not given:
                    continue
                some = f" ({len(given)} of {len(units)})"
                share = some if len(given) < len(units) else ""
                holder = path.rpartition("/")[0]
                if holder in held and (self.attended | self.met)[units].all():
                    path = holder
                left_out.setdefault(path, given[0] + share)
        return left_out


def _why_not(kind: KindName, axes: Sequence[Axis], units: np.ndarray) -> str | None:
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
