"""Where units lie along an axis of a variable, and how narrowing slices it.

Shapes: F units of a group (neurons of an FFN, heads, channels), or of each of its E
experts. What there is of each unit (a mask, indices of those that stay) has the shape
`(F,)` or `(E, F)`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_idea._typing import Tensor
from keras_idea.functional.masks import take_neurons

#: What a variable does along an axis. "each": a kernel that acts on each unit alone;
#: "own": other weights of each unit; "statistic": what is measured of each.
Role = Literal["makes", "each", "reads", "own", "statistic"]


@dataclasses.dataclass(eq=False)
class Axis:
    """An axis of a variable along which there are units, perhaps of many groups.

    Attributes:
        variable: a Keras variable.
        axis: int.
        role: str, what the variable does along it.
        layers: the first one holds the variable; others share it, or call that layer.
        labels: int array, the unit of each entry. Narrowing makes it shorter.
        experts: int or None, the axis of experts, each of which has units of its own.
        matrices: int, how many matrices the variable holds along the axis.
    """

    variable: keras.Variable
    axis: int
    role: Role
    layers: Sequence[Any]
    labels: np.ndarray
    experts: int | None = None
    matrices: int = 1

    @property
    def layer(self) -> Any:
        """The layer that holds the variable; None: an operation is called on it."""
        return self.layers[0] if self.layers else None

    def cut(self, units: np.ndarray) -> "Cut":
        """Returns where some units are along the axis at present."""
        places = places_of(self.labels, units)
        given = places, self.experts, self.matrices, self
        return Cut(self.variable, self.axis, *given)


def places_of(labels: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Returns where units are among the labels of entries: `(F, entries of a unit)`."""
    order = np.argsort(units)
    found = np.minimum(np.searchsorted(units[order], labels), len(order) - 1)
    ours = np.flatnonzero(units[order][found] == labels)
    by_unit = ours[np.argsort(order[found[ours]], kind="stable")]
    return by_unit.reshape(len(units), -1)


@dataclasses.dataclass(eq=False)
class Cut:
    """Where the units of one group are along an axis of a variable.

    Attributes:
        variable: a Keras variable.
        axis: int, along which its units lie.
        places: int array `(F, entries)`, where the entries of each unit are. Defaults
            to None: unit after unit, one entry each.
        experts: int or None, the axis of experts, each of which has units of its own.
        matrices: int, the matrices that the variable holds: of a unit's entries each
            is in another one. Otherwise they lie in one. Defaults to 1.
        along: `Axis` that knows its units; None: nobody asks.

    Example:
    >>> kernel = keras.Variable(np.ones((4, 6)))  # (D, F)
    >>> Cut(kernel, axis=1).neurons
    6
    """

    variable: keras.Variable
    axis: int
    places: Any = None
    experts: int | None = None
    matrices: int = 1
    along: Axis | None = None

    def __post_init__(self) -> None:
        if self.places is None:
            self.places = np.arange(self.variable.shape[self.axis])[:, None]
        #: int, units (of an expert) that it has places for.
        self.neurons, self._entries = self.places.shape
        length = self.variable.shape[self.axis]
        #: bool, whether the axis has these units alone, one after another.
        self.in_order = np.array_equal(self.places.ravel(), np.arange(length))
        self._index = np.full(length, self.neurons)  # of entries of other units: F
        self._index[self.places] = np.arange(self.neurons)[:, None]

    @property
    def is_plain(self) -> bool:
        """bool, whether each unit is one entry of the axis, in their order."""
        return self.in_order and self._entries == 1

    @property
    def size(self) -> int:
        """int, the entries that a unit has in each matrix."""
        return self._entries // self.matrices

    @property
    def units_shape(self) -> tuple[int, ...]:
        """Tuple of int, the shape of a mask: experts, if there are any, and units."""
        experts = () if self.experts is None else (self.variable.shape[self.experts],)
        return (*experts, self.neurons)

    @property
    def weights_axes(self) -> tuple[int, ...]:
        """Tuple of int, the axes of a kernel along which a unit's weights lie."""
        axes = {*range(len(self.variable.shape))} - {self.axis, self.experts}
        return tuple(sorted(axes))

    @property
    def weights(self) -> int:
        """int, the weights of a unit in each matrix."""
        shape = self.variable.shape
        return math.prod(shape[axis] for axis in self.weights_axes) * self.size

    def shape(self, neurons: int) -> tuple[int, ...]:
        """The variable's shape once it has so many units (an expert)."""
        shape = list(self.variable.shape)
        shape[self.axis] -= self.lost(neurons)
        return tuple(shape)

    def lost(self, neurons: int) -> int:
        """int, the entries along the axis that go if so many units stay."""
        return (self.neurons - neurons) * self._entries

    def spread(self, values: Tensor, others: float = 0) -> Tensor:
        """Broadcasts one number per unit, `(F,)` or `(E, F)`, to the variable.

        Entries of units of other groups get `others`.
        """
        if not self.in_order:
            values = ops.convert_to_tensor(values)
            if self._index.max() == self.neurons:
                other = ops.full((1,), others, dtype=values.dtype)
                values = ops.concatenate([values, other])
            values = ops.take(values, self._index.astype("int32"), axis=-1)
        elif not self.is_plain:  # no gather
            values = ops.repeat(values, self._entries, axis=-1)
        for axis in self.weights_axes:
            values = ops.expand_dims(values, axis)
        return values

    def rows(self, values: Tensor) -> Tensor:
        """The weights of each unit, `(F, weights)`, of a kernel without experts."""
        values = ops.moveaxis(self._own(values, self.axis), self.axis, 0)
        return ops.reshape(values, (self.neurons, -1))

    def _own(self, values: Tensor, axis: int = -1) -> Tensor:
        """What along an axis is this group's, unit after unit."""
        if self.in_order:
            return values
        return ops.take(values, self.places.ravel().astype("int32"), axis=axis)

    def _by_unit(self, values: Tensor) -> Tensor:
        """Numbers along the axis, as `(..., F, entries)`."""
        values, shape = self._own(values), self.places.shape
        return ops.reshape(values, (*values.shape[:-1], *shape))

    def split(
        self, values: Tensor, reduce: Callable[..., Tensor] = ops.mean
    ) -> list[Tensor]:
        """Numbers along the axis, as one `(F,)` or `(E, F)` a matrix.

        Where a unit has several entries in a matrix, `reduce` makes one number of them.
        """
        if self.is_plain:
            return [values]
        values = self._by_unit(values)
        if self.size > 1:
            return [reduce(values, axis=-1)]
        return [values[..., matrix] for matrix in range(self.matrices)]

    def used(self) -> Tensor:
        """Bool `(F,)` or `(E, F)`: whether any of a unit's weights is not zero."""
        values = self.variable.value != 0
        if self.weights_axes:
            # The last axis first: Keras 3.13 on torch reduces one after another.
            values = ops.any(values, axis=self.weights_axes[::-1])
        return values if self.is_plain else ops.any(self._by_unit(values), axis=-1)

    def take(self, kept: np.ndarray, value: Tensor | None = None) -> Tensor:
        """The variable's value, or one in its place, with the units `kept` alone.

        They are in any order, `(K,)` or `(E, K)`.
        """
        value = self.variable.value if value is None else value
        return take_neurons(value, self.kept_entries(kept), self.axis, self.experts)

    def first(self, neurons: int, value: Tensor | None = None) -> Tensor:
        """As `take` of the units that come first: slices, no gather."""
        value = self.variable.value if value is None else value
        kept = self.kept_entries(np.arange(neurons))
        runs = np.split(kept, np.flatnonzero(np.diff(kept) != 1) + 1)
        before = (slice(None),) * self.axis
        parts = [value[(*before, slice(int(r[0]), int(r[-1]) + 1))] for r in runs]
        return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=self.axis)

    def kept_entries(self, kept: np.ndarray) -> np.ndarray:
        """Returns where the entries lie that remain if only the units `kept` stay.

        Those of other units that share the axis remain.
        """
        if self.is_plain:
            return kept
        if kept.ndim > 1:
            return np.stack([self.kept_entries(row) for row in kept])
        entries = np.arange(len(self._index))
        entries[self.places[np.sort(kept)]] = self.places[kept]
        return entries[np.isin(self._index, kept) | (self._index == self.neurons)]

    def narrow_labels(self, kept: np.ndarray) -> Callable[[], None]:
        """Has the axis know that units went; returns a function that undoes it."""
        if self.along is None:
            return lambda: None
        before, row = self.along.labels, kept.reshape(-1, kept.shape[-1])[0]
        self.along.labels = before[self.kept_entries(row)]
        return functools.partial(setattr, self.along, "labels", before)

    def widened(self, places: np.ndarray, length: int) -> Tensor:
        """The value with its entries at `places` of an axis so long, among zeros.

        `take` the other way round.
        """
        value = ops.convert_to_tensor(self.variable.value)
        entries, rank = places.shape[-1], len(self.variable.shape)
        value = ops.pad(value, [(0, int(axis == self.axis)) for axis in range(rank)])
        sources = np.full((*places.shape[:-1], length), entries)
        np.put_along_axis(sources, places, np.arange(entries), axis=-1)
        return take_neurons(value, sources, self.axis, self.experts)


def used_neurons(cuts: Sequence[Cut]) -> Tensor:
    """The mask, `(F,)` or `(E, F)`, of the units with a weight other than zero.

    Where all are zero, as in an FFN that begins with zeros, each counts as used.
    """
    used = functools.reduce(ops.logical_or, (cut.used() for cut in cuts))
    unknown = ops.logical_not(ops.any(used, axis=-1, keepdims=True))
    return ops.cast(ops.logical_or(used, unknown), "float32")
