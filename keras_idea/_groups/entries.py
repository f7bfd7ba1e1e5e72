"""Which entries of a variable's axis belong to which unit, where the axis is shared.

The input axis of a convolution behind a `Concatenate` holds the channels of several
groups; that of a Dense layer behind a `Flatten` holds each channel at every place.
"""

import dataclasses
import functools

import numpy as np


class Labels:
    """The unit of each entry of one axis: narrowing makes the array shorter."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


@dataclasses.dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one group's units along an axis, as long as it is not narrowed.

    Attributes:
        labels: `Labels` of the axis.
        array: int array, what they are now.
        units: int array `(F,)`, the labels of the group's units, in its order.
    """

    labels: Labels
    array: np.ndarray
    units: np.ndarray

    @functools.cached_property
    def places(self) -> np.ndarray:
        """Int array `(F, entries of a unit)`: where they are."""
        ours = np.flatnonzero(self.index < len(self.units))
        by_unit = ours[np.argsort(self.index[ours], kind="stable")]
        return by_unit.reshape(len(self.units), -1)

    @functools.cached_property
    def index(self) -> np.ndarray:
        """Int array: the place of each entry's unit in the group; F of all others."""
        order = np.argsort(self.units)
        place = np.searchsorted(self.units[order], self.array)
        place = np.minimum(place, len(order) - 1)
        ours = self.units[order][place] == self.array
        return np.where(ours, order[place], len(self.units))

    @functools.cached_property
    def side_by_side(self) -> bool:
        """bool, whether the axis has these units alone, one after another."""
        size = len(self.array) // len(self.units)
        every = np.repeat(self.units, size)
        return np.array_equal(every, self.array)

    def kept(self, units: np.ndarray) -> np.ndarray:
        """Where the entries are that remain if of the group only some units stay."""
        stays = np.zeros(len(self.units) + 1, bool)
        stays[units] = stays[-1] = True
        return np.flatnonzero(stays[self.index])
