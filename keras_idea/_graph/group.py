"""Groups: units that lie equally often in the same variables, and are pruned apart.

The entries of each axis are numbered by the unit to which they belong. What a
`Concatenate` puts behind one another is several groups along one axis, what an `Add`
sums is one group of many layers, and a head has several entries. Narrowing one group
moves the others' entries.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph.atoms import Role
from keras_idea._groups.cut import Cut
from keras_idea._groups.entries import Entries, Labels
from keras_idea._groups.kinds import CHANNELS, NEURONS, KindName
from keras_idea._keras.attention import set_numbers_of_heads
from keras_idea._keras.channels import SEPARABLE, dense_of, tell, tell_size
from keras_idea._keras.layers import stored_kernel
from keras_idea._layers.ffn import FFNLayer

#: In this order a group's layers are listed.
_ROLES: tuple[Role, ...] = ("makes", "each", "reads", "own", "statistic")


@dataclasses.dataclass(frozen=True, eq=False)
class Axis:
    """An axis of a variable along which there are units, perhaps of many groups.

    `layers`: the first one holds the variable; others share it, or call that layer.
    """

    variable: keras.Variable
    axis: int
    role: Role
    layers: Sequence[Any]
    labels: Labels

    @property
    def layer(self) -> Any:
        """The layer that holds the variable; None: an operation is called on it."""
        return self.layers[0] if self.layers else None


@dataclasses.dataclass(frozen=True, eq=False)
class Sized:
    """A Reshape, or an input of a nested model, that knows how many units there are.

    `labels`: the unit of each entry along `axis` after the batch, before any narrowing.
    """

    layer: Any
    axis: int
    labels: np.ndarray


class Axes:
    """All axes with units in a model, and what else knows their number."""

    def __init__(self, axes: Sequence[Axis], sized: Sequence[Sized]) -> None:
        self.axes, self.sized = axes, sized

    @property
    def are_current(self) -> bool:
        """bool, whether all narrowing is known."""
        return all(
            axis.variable.shape[axis.axis] == len(axis.labels.array)
            for axis in self.axes
        )

    def tell(self, layers: Sequence[keras.layers.Layer]) -> None:
        """Has layers, and all of `sized`, say how many units there are now."""
        for layer in layers:
            tell(layer)
        if self.sized:
            left = np.concatenate([axis.labels.array for axis in self.axes])
            for each in self.sized:
                size = np.isin(each.labels, left).sum()
                tell_size(each.layer, each.axis, int(size))


@dataclasses.dataclass(eq=False)
class Group:
    """Units that lie equally often in the same variables.

    Attributes:
        kind: str, a key of `KINDS`, or "features".
        axes: list of `Axis`, of each role in the order of the scores.
        units: int array, the labels of its units before any narrowing.
        whole: `Axes` of the model.
        owner: the layer that identifies the group.
        preserves_zero: bool, whether what reads a unit of zeros gets zeros.
        shown: bool, whether the reader is called on the units by the model itself.
        heads: (query heads, key/value heads, features of a head) of a unit, or None.
    """

    kind: KindName
    axes: Sequence[Axis]
    units: np.ndarray
    whole: Axes
    owner: Any = None
    preserves_zero: bool = False
    shown: bool = True
    heads: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        self._cuts: dict[int, Cut] = {}
        self._cuts_of: list[np.ndarray] = []

    def _by_role(self, *roles: Role) -> list[Cut]:
        arrays = [axis.labels.array for axis in self.axes]
        if not self._cuts_of or any(
            a is not b for a, b in zip(arrays, self._cuts_of, strict=True)
        ):
            units = self.units[np.isin(self.units, arrays[0])]
            pairs = zip(self.axes, arrays, strict=True)
            self._cuts = {id(axis): _cut(axis, array, units) for axis, array in pairs}
            self._cuts_of = arrays
        return [
            self._cuts[id(axis)]
            for role in roles
            for axis in self.axes
            if axis.role == role
        ]

    def _layers_of(self, *roles: Role) -> list[keras.layers.Layer]:
        found = [
            layer
            for role in roles
            for axis in self.axes
            if axis.role == role
            for layer in axis.layers
        ]
        return list({id(layer): layer for layer in found}.values())

    @property
    def makers(self) -> list[keras.layers.Layer]:
        """List of the layers whose kernels make the units, or act on each."""
        return self._layers_of("makes", "each")

    @property
    def readers(self) -> list[keras.layers.Layer]:
        """List of a layer for each kernel that reads them."""
        found = [axis.layer for axis in self.axes if axis.role == "reads"]
        return [layer for layer in found if layer is not None]

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of all layers that have weights of them, the makers first."""
        return self._layers_of(*_ROLES)

    @property
    def shown_by(self) -> keras.layers.Layer | None:
        """The one layer that is called on the neurons, one after another, or None.

        A layer of a class of its own may be called on anything else.
        """
        cuts = self._by_role("reads")
        if self.kind != NEURONS or not self.shown or len(cuts) > 1 or not self.readers:
            return None
        reader = self.readers[0]
        in_order = cuts[0].size == 1 and cuts[0].scattered is None
        known = dense_of(reader) is reader or isinstance(reader, FFNLayer)
        return reader if in_order and known else None

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias that is added to what the units become, or None."""
        if self.kind == CHANNELS or not self.readers:
            return None
        bias: keras.Variable | None = getattr(self.readers[0], "bias", None)
        return bias

    @property
    def hidden_dim(self) -> int:
        """int, units that the kernels have places for."""
        return self._by_role("reads")[0].neurons

    def read_places(self) -> list[tuple[keras.layers.Layer, np.ndarray]]:
        """List of (layer that reads them, where they are in what it is called on).

        The places are int arrays `(units, entries of a unit)` along its last axis, or
        its channels'.
        """
        units = self.units[np.isin(self.units, self.axes[0].labels.array)]
        found = []
        for axis in self.axes:
            if axis.role == "reads":
                labels = input_labels(axis, self.whole.axes)
                found.append((axis.layer, Entries(axis.labels, labels, units).places))
        return found

    def own_cuts(self) -> list[Cut]:
        """Where they are in the weights whose zeros say that one is pruned.

        Of channels in the kernels that read them: a normalization may make anything of
        zeros.
        """
        if self.kind == CHANNELS:
            return self._by_role("reads")
        ours = [axis for axis in self.axes if axis.role == "own"]
        makers = set(map(id, self.makers))
        biases = [axis for axis in ours if id(axis.layer) in makers]
        kernels = self._by_role("makes", "each", "reads")
        return [*kernels, *(self._cuts[id(axis)] for axis in biases)]

    def cuts(self) -> list[Cut]:
        """Where they are in all weights, the kernels first."""
        return self._by_role("makes", "each", "reads", "own")

    def held_cuts(self) -> list[Cut]:
        """Where they are in all variables, also in moving statistics."""
        return self._by_role(*_ROLES)

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their variables have other shapes now."""
        self.whole.tell(self.layers)
        if self.heads is None:
            return
        queries, keys, head_dim = self.heads
        queries, keys = queries * hidden_dim, keys * hidden_dim
        set_numbers_of_heads(self.owner, queries, keys, head_dim)


def group_of_dense(
    makers: Sequence[keras.layers.Layer], reader: keras.layers.Layer, shown: bool = True
) -> Group:
    """Returns the neurons that Dense layers make and one reads, where a table says so.

    `shown`: whether the reader is called on them.
    """
    held: list[tuple[Any, int, Role, Any]] = [
        *((stored_kernel(layer), 1, "makes", layer) for layer in makers),
        (stored_kernel(reader), 0, "reads", reader),
        *((layer.bias, 0, "own", layer) for layer in makers if layer.bias is not None),
    ]
    units = np.arange(held[0][0].shape[1])
    axes = [
        Axis(variable, axis, role, [layer], Labels(units))
        for variable, axis, role, layer in held
    ]
    whole = Axes(axes, [])
    return Group(NEURONS, axes, units, whole, makers[0], True, shown)


def input_labels(axis: Axis, every: Sequence[Axis]) -> np.ndarray:
    """Returns the unit of each entry of what a layer that reads units is called on."""
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
