"""Every entry of a variable's axis that may number units, and which of them are one.

An *atom* is one such entry: a number. A tensor carries the atoms of its entries, an int
array of its rank that has size 1 along each axis on which they do not depend. What acts
on each number alone joins atom to atom; anything else settles them: they stay, for a
reason. Atoms that are joined are one unit.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._groups.cut import Role
from keras_idea._keras.symbolic import Call


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """One axis of a variable, the layers that use it, and the atoms along it."""

    variable: keras.Variable
    axis: int
    role: Role
    layers: list[Any]
    atoms: np.ndarray


class Atoms:
    """The atoms of a model while it is followed.

    Attributes:
        places: dict, (`id` of a variable, axis) -> `Place`.
        of_tensor: dict, `id` of a `KerasTensor` -> its atoms.
        reasons: list, of each atom why it stays from the start, or None.
        uniform: set, `id`s of tensors that have one number everywhere.
        attended: list of lists of arrays, what meets in each product of tensors.
        normalized: list of (array, reason), atoms over which a layer normalizes.
        alive: list of arrays, atoms of which an operation may make other numbers than
            zeros of a unit of zeros.
    """

    def __init__(self) -> None:
        self.places: dict[Hashable, Place] = {}
        self.of_tensor: dict[int, np.ndarray] = {}
        self.reasons: list[str | None] = []
        self.attended: list[list[np.ndarray]] = []
        self.normalized: list[tuple[np.ndarray, str]] = []
        self.alive: list[np.ndarray] = []
        self.uniform: set[int] = set()
        self._fixed = np.zeros(1024, bool)
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []
        self._settled: list[tuple[np.ndarray, str]] = []

    def new(self, count: int, reason: str | None = None) -> np.ndarray:
        """Makes as many new atoms; with a reason they stay, and do not tie others."""
        first = len(self.reasons)
        self.reasons += [reason] * count
        if len(self.reasons) > len(self._fixed):
            more = np.zeros(2 * len(self.reasons), bool)
            self._fixed = np.append(self._fixed, more)
        self._fixed[first : first + count] = reason is not None
        return np.arange(first, first + count)

    def constant(self, tensor: keras.KerasTensor, reason: str) -> np.ndarray:
        """Makes one atom that stays, for all of a tensor."""
        return self.new(1, reason).reshape((1,) * len(tensor.shape))

    def of(self, tensor: keras.KerasTensor) -> np.ndarray:
        """Returns the atoms of a tensor."""
        if id(tensor) not in self.of_tensor:
            constant = self.constant(tensor, "it comes from elsewhere")
            self.of_tensor[id(tensor)] = constant
        return self.of_tensor[id(tensor)]

    def along_variable(
        self, variable: keras.Variable, axis: int, role: Role, layer: Any
    ) -> np.ndarray:
        """Returns the atoms along an axis of a variable."""
        axis %= len(variable.shape)
        key = id(variable), axis
        place = self.places.get(key)
        if place is None:
            size = variable.shape[axis]
            atoms = self.new(size, "there is one only" if size == 1 else None)
            place = self.places[key] = Place(variable, axis, role, [], atoms)
        if layer is not None and layer not in place.layers:
            if not place.layers:  # it was settled before its layer was met
                place = dataclasses.replace(place, role=role)
                self.places[key] = place
            elif place.role != role:
                names = f"'{place.layers[0].name}' and '{layer.name}'"
                self.settle(place.atoms, f"{names} share a variable")
            place.layers.append(layer)
        return place.atoms

    def settle(self, atoms: np.ndarray, reason: str, first: bool = False) -> None:
        """Has units stay; of several reasons the first is kept."""
        self._settled.insert(0 if first else len(self._settled), (atoms, reason))

    def settle_variable(self, variable: keras.Variable, reason: str) -> None:
        """Has all units along all axes of a variable stay."""
        for axis in range(len(variable.shape)):
            self.settle(self.along_variable(variable, axis, "own", None), reason)

    def are_fixed(self, atoms: np.ndarray) -> bool:
        """Returns whether these are all known to stay when they were made."""
        return bool(self._fixed[atoms].all())

    def join(self, some: np.ndarray, others: np.ndarray) -> None:
        """Makes atoms one, with broadcasting; those joined to fixed ones stay."""
        some, others = (a.ravel() for a in np.broadcast_arrays(some, others))
        one, other = self._fixed[some], self._fixed[others]
        free = ~one & ~other
        self._edges.append((some[free], others[free]))
        for given, kept in (
            (some[one & ~other], others[one & ~other]),
            (others[other & ~one], some[other & ~one]),
        ):
            if len(given):
                self.settle(kept, f"combined with: {self.reasons[given[0]]}")

    def whole(self, atoms: np.ndarray, *axes: int) -> np.ndarray:
        """Joins atoms along some axes, along which they do not vary any more."""
        for axis in axes:
            if atoms.shape[axis] > 1:
                self.join(atoms, atoms.take([0], axis))
                atoms = atoms.take([0], axis)
        return atoms

    def along(self, tensor: keras.KerasTensor, axis: int, why: str) -> np.ndarray:
        """Returns the atoms along an axis, in full: those at other places go with them.

        They are settled if they vary along other axes alone.
        """
        atoms, axis = self.of(tensor), axis % len(tensor.shape)
        if atoms.size > 1 and atoms.shape[axis] == 1:
            self.settle(atoms, why)
            return self.new(tensor.shape[axis], why)
        atoms = self.whole(atoms, *(a for a in range(atoms.ndim) if a != axis))
        return np.broadcast_to(atoms.reshape(-1), (tensor.shape[axis],))

    def units(self) -> np.ndarray:
        """Returns the unit of each atom: the least atom that is one with it."""
        return _components(len(self.reasons), self._edges)

    def why(self, root: np.ndarray) -> np.ndarray:
        """Returns by unit why it stays, or None."""
        return noted(root, self._settled, self.reasons)


def noted(
    root: np.ndarray, notes: Sequence[tuple[np.ndarray, str]], others: Any = None
) -> np.ndarray:
    """Returns by unit what is noted of its atoms first, else None or of `others`."""
    of_unit = np.empty(len(root), object)
    of_unit[:] = others
    for atoms, note in reversed(notes):
        of_unit[root[atoms]] = note
    return of_unit


#: The atoms of the (only) output, a list of those of several, None if they are mixed or
#: read, or a reason in words.
Made: TypeAlias = np.ndarray | list[np.ndarray] | str | None
Rule: TypeAlias = Callable[[Atoms, Any, Call], Made]


def at_axis(atoms: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """Returns atoms of one axis as those of a tensor of so many axes."""
    shape = [1] * rank
    shape[axis] = -1
    return atoms.reshape(shape)


def has_places(argument: Any) -> bool:
    """Returns whether an argument has several numbers that are not the same."""
    if isinstance(argument, (keras.KerasTensor, keras.Variable)):
        return isinstance(argument, keras.KerasTensor) or math.prod(argument.shape) > 1
    if not hasattr(argument, "dtype") or math.prod(tuple(argument.shape)) <= 1:
        return False
    array = keras.ops.convert_to_numpy(argument)
    return bool((array != array.flat[0]).any())


def varies(units: np.ndarray, axis: int) -> bool:
    """Returns whether an array has different entries along an axis."""
    return bool((units != units.take([0], axis)).any())


def _components(count: int, edges: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Returns the least atom of each set of joined ones: hooking and jumping."""
    root = np.arange(count)
    some = np.concatenate([edge[0] for edge in edges] or [root[:0]])
    others = np.concatenate([edge[1] for edge in edges] or [root[:0]])
    while True:
        ends = root[some], root[others]
        low, high = np.minimum(*ends), np.maximum(*ends)
        if (low == high).all():
            return root
        np.minimum.at(root, high, low)
        while not (root[root] == root).all():
            root = root[root]
