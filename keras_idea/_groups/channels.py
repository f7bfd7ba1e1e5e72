"""Channels of a convolutional network: what is along one axis for all who share it.

What a `Concatenate` joins is several groups along one axis, and what an `Add` sums is
one group of many layers. The entries of each axis are numbered by the unit to which
they belong (`keras_idea._groups.entries`), and narrowing one group moves the others'.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._groups.atoms import Role
from keras_idea._groups.cut import Cut
from keras_idea._groups.entries import Entries, Labels
from keras_idea._groups.kinds import CHANNELS
from keras_idea._keras.channels import SEPARABLE, tell_channels, tell_size


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """An axis of a variable along which there are channels, perhaps of many groups."""

    variable: keras.Variable
    axis: int
    role: Role
    layer: Any
    labels: Labels


@dataclasses.dataclass(frozen=True, eq=False)
class Sized:
    """A Reshape, or an input of a nested model, that knows how many channels there are.

    `labels`: the unit of each entry along `axis` after the batch, before any narrowing.
    """

    layer: Any
    axis: int
    labels: np.ndarray


class ChannelMap:
    """All axes with channels in a model, and what else knows their number."""

    def __init__(self, axes: Sequence[Axis], sized: Sequence[Sized]) -> None:
        self.axes, self._sized = axes, sized

    @property
    def is_current(self) -> bool:
        """bool, whether all narrowing is known."""
        return all(
            axis.variable.shape[axis.axis] == len(axis.labels.array)
            for axis in self.axes
        )

    def tell(self, layers: Sequence[keras.layers.Layer]) -> None:
        """Has layers, and all of `Sized`, say how many channels there are now."""
        for layer in layers:
            tell_channels(layer)
        if self._sized:
            left = np.concatenate([axis.labels.array for axis in self.axes])
            for each in self._sized:
                size = np.isin(each.labels, left).sum()
                tell_size(each.layer, each.axis, int(size))


@dataclasses.dataclass(eq=False)
class ChannelGroup:
    """Channels that lie equally often in the same variables.

    Attributes:
        axes: list of `Axis`, in the order in which the data comes to them.
        units: int array, the labels of its units before any narrowing.
        whole: `ChannelMap` of the model.
    """

    axes: Sequence[Axis]
    units: np.ndarray
    whole: ChannelMap
    kind = CHANNELS
    # What a normalization, or an activation, makes of zeros may not be zero.
    preserves_zero = False
    shown_by = reader_bias = None

    def __post_init__(self) -> None:
        self._cuts: dict[Role, list[Cut]] = {}
        self._cuts_of: list[np.ndarray] = []

    def _by_role(self, *roles: Role) -> list[Cut]:
        arrays = [axis.labels.array for axis in self.axes]
        if not self._cuts_of or any(
            a is not b for a, b in zip(arrays, self._cuts_of, strict=True)
        ):
            units = self.units[np.isin(self.units, arrays[0])]
            self._cuts, self._cuts_of = {}, arrays
            for axis, array in zip(self.axes, arrays, strict=True):
                self._cuts.setdefault(axis.role, []).append(_cut(axis, array, units))
        return [cut for role in roles for cut in self._cuts.get(role, [])]

    def _layers_of(self, *roles: Role) -> list[keras.layers.Layer]:
        """The layer of each cut of these roles."""
        return [a.layer for role in roles for a in self.axes if a.role == role]

    @property
    def makers(self) -> list[keras.layers.Layer]:
        """List of a layer for each kernel that makes the channels, or acts on each."""
        return self._layers_of("makes", "each")

    @property
    def readers(self) -> list[keras.layers.Layer]:
        """List of a layer for each kernel that reads them."""
        return self._layers_of("reads")

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of all layers that have weights of them, the makers first."""
        roles: tuple[Role, ...] = ("makes", "each", "reads", "own", "statistic")
        found = [layer for layer in self._layers_of(*roles) if layer is not None]
        return list({id(layer): layer for layer in found}.values())

    @property
    def hidden_dim(self) -> int:
        """int, channels that the kernels have places for."""
        return len(self.units) and self._by_role("reads")[0].neurons

    def read_places(self) -> list[tuple[keras.layers.Layer, np.ndarray]]:
        """List of (layer that reads them, where they are in what it is called on).

        The places are int arrays `(units, entries of a unit)` along its channel axis.
        """
        units = self.units[np.isin(self.units, self.axes[0].labels.array)]
        found = []
        for axis in self.axes:
            if axis.role == "reads":
                labels = input_labels(axis, self.whole.axes)
                found.append((axis.layer, Entries(axis.labels, labels, units).places))
        return found

    def own_cuts(self) -> list[Cut]:
        """Where they are in the kernels that read them.

        With zeros there a channel reaches nothing, whatever a normalization makes of
        it.
        """
        return self._by_role("reads")

    def cuts(self) -> list[Cut]:
        """Where they are in all weights, the kernels first."""
        return self._by_role("makes", "each", "reads", "own")

    def held_cuts(self) -> list[Cut]:
        """Where they are in all variables, also in moving statistics."""
        return self._by_role("makes", "each", "reads", "own", "statistic")

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their variables have other shapes now."""
        self.whole.tell(self.layers)


def input_labels(axis: Axis, every: Sequence[Axis]) -> np.ndarray:
    """The unit of each entry of what a layer is called on, whose kernel reads it."""
    if type(axis.layer) in SEPARABLE:  # its other kernel is called on the input
        return next(
            other.labels.array
            for other in every
            if other.layer is axis.layer and other.role == "each"
        )
    groups = getattr(axis.layer, "groups", 1)  # which have the same rows
    return np.tile(axis.labels.array, groups)


def _cut(axis: Axis, array: np.ndarray, units: np.ndarray) -> Cut:
    entries = Entries(axis.labels, array, units)
    size = int((entries.index < len(units)).sum()) // len(units)
    is_bias = axis.role in ("own", "statistic")
    return Cut(axis.variable, axis.axis, size=size, is_bias=is_bias, entries=entries)
