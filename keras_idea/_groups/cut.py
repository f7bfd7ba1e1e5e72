"""How a variable holds the neurons of an FFN: along which axis, in which order.

Shapes: F neurons of an FFN, or of each of its E experts; D = input_dim. What there is
of each neuron (a mask, indices of those that stay) has the shape `(F,)` or `(E, F)`.
The heads of an attention lie in its weights likewise; what is said of neurons holds of
its F groups of a key/value head with its query heads.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_idea._groups.entries import Entries
from keras_idea._typing import Tensor
from keras_idea.functional.masks import take_neurons

#: Two matrices in one variable. "halves": neuron j is j and F + j; "pairs": 2j, 2j + 1.
Packing = Literal["", "halves", "pairs"]


@dataclasses.dataclass(frozen=True)
class Cut:
    """One axis of one variable, which narrowing slices.

    Attributes:
        variable: a Keras variable.
        axis: int, along which its neurons lie.
        group: int or None, the axis of the experts, each of which has neurons of its
            own; None: there are none.
        packing: how the neurons of two matrices lie behind one another along `axis`;
            "": it is one matrix.
        size: int, the entries along `axis` that a neuron has, side by side: the query
            heads of a key/value head. Default 1.
        is_bias: bool, whether it holds no weights that count in a score. Default
            False.
        entries: `Entries` where other units share the axis, or None. Then `size` are
            those of a unit, wherever they are.

    Example:
    >>> kernel = keras.Variable(np.ones((4, 6)))  # (D, F)
    >>> Cut(kernel, axis=1).neurons
    6
    """

    variable: keras.Variable
    axis: int
    group: int | None = None
    packing: Packing = ""
    size: int = 1
    is_bias: bool = False
    entries: Entries | None = None

    @property
    def scattered(self) -> Entries | None:
        """The entries, where they are not simply the axis, unit after unit."""
        entries = self.entries
        return None if entries is None or entries.side_by_side else entries

    @property
    def matrices(self) -> int:
        """int, matrices that the variable holds."""
        return 2 if self.packing else 1

    @property
    def neurons(self) -> int:
        """int, neurons (of an expert) that it has places for."""
        if self.entries is not None:
            return len(self.entries.units)
        return self.variable.shape[self.axis] // (self.matrices * self.size)

    @property
    def weights_axes(self) -> tuple[int, ...]:
        """Tuple of int, the axes of a kernel along which a neuron's weights lie."""
        axes = {*range(len(self.variable.shape))} - {self.axis, self.group}
        return tuple(sorted(axes))

    @property
    def weights(self) -> int:
        """int, the weights of a neuron in each matrix."""
        shape = self.variable.shape
        return math.prod(shape[axis] for axis in self.weights_axes) * self.size

    def of(self, variable: keras.Variable, axis: int) -> "Cut":
        """The same neurons in another variable, such as an optimizer's slot."""
        return dataclasses.replace(self, variable=variable, axis=axis)

    def shape(self, neurons: int) -> tuple[int, ...]:
        """The variable's shape once it has so many neurons (an expert)."""
        shape = tuple(self.variable.shape)
        before, after = shape[: self.axis], shape[self.axis + 1 :]
        others = shape[self.axis] - self.neurons * self.matrices * self.size
        return (*before, neurons * self.matrices * self.size + others, *after)

    def lost(self, neurons: int) -> int:
        """int, the entries along the axis that go if so many neurons stay."""
        return self.variable.shape[self.axis] - self.shape(neurons)[self.axis]

    def spread(self, values: Tensor, others: float = 0) -> Tensor:
        """One number a neuron, `(F,)` or `(E, F)`, so that it multiplies its rows.

        `others`: that of entries that are other units'.
        """
        if self.scattered is not None:
            values = ops.convert_to_tensor(values)
            other = ops.full((1,), others, dtype=values.dtype)
            values = ops.concatenate([values, other])
            values = ops.take(values, self.scattered.index.astype("int32"))
        elif self.packing == "halves":
            values = ops.concatenate([values, values], axis=-1)
        elif self.packing == "pairs":
            values = ops.repeat(values, 2, axis=-1)
        elif self.size > 1:
            values = ops.repeat(values, self.size, axis=-1)
        for axis in self.weights_axes:
            values = ops.expand_dims(values, axis)
        return values

    def rows(self, values: Tensor) -> Tensor:
        """The weights of each neuron, `(F, weights)`, of a kernel without experts."""
        values = ops.moveaxis(self._own(values, self.axis), self.axis, 0)
        return ops.reshape(values, (self.neurons, -1))

    def _own(self, values: Tensor, axis: int = 0) -> Tensor:
        """What along an axis is this group's, unit after unit."""
        if self.scattered is None:
            return values
        places = self.scattered.places.reshape(-1).astype("int32")
        return ops.take(values, places, axis=axis)

    def split(
        self, values: Tensor, reduce: Callable[..., Tensor] = ops.mean
    ) -> list[Tensor]:
        """Numbers along the axis, as one `(F,)` or `(E, F)` a matrix.

        Where a neuron has several entries, `reduce` makes one number of theirs.
        """
        values = self._own(values)
        if self.size > 1:
            return [reduce(ops.reshape(values, (-1, self.size)), axis=-1)]
        if not self.packing:
            return [values]
        if self.packing == "pairs":
            return [values[..., ::2], values[..., 1::2]]
        return ops.split(values, 2, axis=-1)

    def used(self) -> Tensor:
        """Bool `(F,)` or `(E, F)`: whether any of a neuron's weights is not zero."""
        values = self.variable.value != 0
        if self.weights_axes:
            # The last axis first: Keras 3.13 on torch reduces one after another.
            values = ops.any(values, axis=self.weights_axes[::-1])
        if self.size > 1 or self.scattered is not None:
            values = ops.reshape(self._own(values), (-1, self.size))
            return ops.any(values, axis=-1)
        first, *second = self.split(values)
        return ops.logical_or(first, second[0]) if second else first

    def take(self, kept: np.ndarray, value: Tensor | None = None) -> Tensor:
        """The variable's value, or one in its place, of the neurons `kept` alone.

        They are in any order, `(K,)` or `(E, K)`.
        """
        value = self.variable.value if value is None else value
        return take_neurons(value, self.places(kept), self.axis, self.group)

    def first(self, neurons: int, value: Tensor | None = None) -> Tensor:
        """As `take` of so many neurons, those that come first: slices, no gather."""
        value = self.variable.value if value is None else value

        def part(start: int, stop: int) -> Tensor:
            return value[(slice(None),) * self.axis + (slice(start, stop),)]

        if self.packing == "halves":
            second = self.neurons
            halves = [part(0, neurons), part(second, second + neurons)]
            return ops.concatenate(halves, axis=self.axis)
        return part(0, neurons * self.matrices * self.size)

    def places(self, kept: np.ndarray) -> np.ndarray:
        """Where the entries of the neurons `kept` lie along the axis.

        With those of other units that share it.
        """
        if self.scattered is not None:
            return self.scattered.kept(kept)
        if self.packing == "halves":
            return np.concatenate([kept, kept + self.neurons], axis=-1)
        if self.packing == "pairs":
            places = np.stack([2 * kept, 2 * kept + 1], axis=-1)
            return places.reshape(*kept.shape[:-1], -1)
        if self.size > 1:
            return (kept[:, None] * self.size + np.arange(self.size)).reshape(-1)
        return kept

    def narrow_labels(self, kept: np.ndarray) -> Callable[[], None]:
        """Has other groups along the axis know that units went; returns the undoing."""
        if self.entries is None:
            return lambda: None
        labels, before = self.entries.labels, self.entries.array
        labels.array = before[self.places(kept)]
        return functools.partial(setattr, labels, "array", before)

    def widened(self, places: np.ndarray, length: int) -> Tensor:
        """The value with its entries at `places` of an axis so long, among zeros.

        `take` the other way round.
        """
        value = ops.convert_to_tensor(self.variable.value)
        entries = places.shape[-1]
        zero = (*self.variable.shape[: self.axis], 1)
        zero = (*zero, *self.variable.shape[self.axis + 1 :])
        zeros = ops.zeros(zero, dtype=value.dtype)
        value = ops.concatenate([value, zeros], axis=self.axis)
        sources = np.full((*places.shape[:-1], length), entries)
        np.put_along_axis(sources, places, np.arange(entries), axis=-1)
        return take_neurons(value, sources, self.axis, self.group)


def used_neurons(cuts: Sequence[Cut]) -> Tensor:
    """The mask, `(F,)` or `(E, F)`, of the neurons with a weight other than zero.

    Where all are zero, as in an FFN that begins with zeros, each counts as used.
    """
    used = functools.reduce(ops.logical_or, (cut.used() for cut in cuts))
    unknown = ops.logical_not(ops.any(used, axis=-1, keepdims=True))
    return ops.cast(ops.logical_or(used, unknown), "float32")
