"""What operations that move numbers do to the atoms: the same as to the numbers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph.atoms import Atoms, Made, Rule, has_places, varies
from keras_idea._keras.symbolic import Call


def resized(array: np.ndarray, before: Sequence[int], after: Sequence[int]) -> Made:
    """Follows entries that keep their order under another shape.

    Where some do not depend on their place, they do not either in the new shape.
    """
    before, after = _known(before, after)
    if math.prod(before) != math.prod(after):
        return "it is reshaped to sizes that the model leaves open"
    i = j = 0
    old, new = list[int](), list[int]()
    while i < len(before) or j < len(after):  # blocks of axes of equal products
        i2, j2 = i + 1, j + 1
        while (p := math.prod(before[i:i2])) != (q := math.prod(after[j:j2])):
            i2, j2 = i2 + (p < q), j2 + (p > q)
        last = i2 >= len(before) or j2 >= len(after)
        i2, j2 = (len(before), len(after)) if last else (i2, j2)
        varies = any(array.shape[axis] > 1 for axis in range(i, min(i2, array.ndim)))
        old += [size if varies else 1 for size in before[i:i2]]
        new += [size if varies else 1 for size in after[j:j2]]
        i, j = i2, j2
    return _least(np.broadcast_to(array, old).reshape(new))


def _least(array: np.ndarray) -> np.ndarray:
    """Returns atoms without the axes on which they do not depend: of size 1."""
    for axis in range(array.ndim):
        if array.shape[axis] > 1 and not varies(array, axis):
            array = array.take([0], axis)
    return array


def _known(
    before: Sequence[int | None], after: Sequence[int | None]
) -> tuple[list[int], list[int]]:
    """Returns two shapes of one size, in which numbers stand for open ones."""
    old, new = [size or 8 for size in before], list(after)
    for axis, size in enumerate(new[: len(old)]):
        if size is None and new[:axis] == old[:axis]:  # leading sizes stay
            new[axis] = old[axis]
    rest = math.prod(size for size in new if size is not None)
    return old, [max(1, math.prod(old) // rest) if s is None else s for s in new]


def reshaped(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows what keeps the order of numbers, such as `Reshape` and `Flatten`."""
    before, after = call.inputs[0], call.outputs[0]
    array = atoms.of(before)
    if array.size == 1:
        return array.reshape((1,) * len(after.shape))
    shape = list(before.shape)
    if getattr(operation, "data_format", "") == "channels_first":  # moved last
        array = np.moveaxis(array, 1, -1)
        shape = [shape[0], *shape[2:], shape[1]]
    return resized(array, shape, after.shape)


def by(function: Callable[..., np.ndarray], *names: str) -> Rule:
    """Makes a rule of NumPy's function, and of the settings that it takes."""

    def moved(atoms: Atoms, operation: Any, call: Call) -> Made:
        settings = [getattr(operation, name) for name in names]
        made = function(atoms.of(call.inputs[0]), *settings)
        return _least(made) if made.ndim == len(call.outputs[0].shape) else None

    return moved


def split(atoms: Atoms, operation: Any, call: Call) -> Made:
    array, axis = atoms.of(call.inputs[0]), operation.axis
    if array.shape[axis] == 1:
        return [array for _ in call.outputs]
    if len({tensor.shape[axis] for tensor in call.outputs}) > 1:
        return [atoms.whole(array, axis) for _ in call.outputs]
    parts = np.split(array, len(call.outputs), axis)
    for part in parts[1:]:  # each part is to be as long as the others
        atoms.join(parts[0], part)
    return parts


def unstacked(atoms: Atoms, operation: Any, call: Call) -> Made:
    array, axis = atoms.of(call.inputs[0]), operation.axis
    return [atoms.whole(array, axis).squeeze(axis) for _ in call.outputs]


def stacked(atoms: Atoms, operation: Any, call: Call) -> Made:
    axis = operation.axis % len(call.outputs[0].shape)
    parts = [np.expand_dims(atoms.of(tensor), axis) for tensor in call.inputs]
    return _put_together(atoms, parts, axis)


def _put_together(atoms: Atoms, parts: Sequence[np.ndarray], axis: int) -> Made:
    """Follows tensors along a new axis, or behind one another: one unit at a place."""
    first = max(parts, key=np.size)
    for part in parts:
        if part is not first and not (first.size == part.size == 1):
            atoms.join(first, part)
    return first


def concatenated(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows `Concatenate`; what is joined along another axis must be the same."""
    rank = len(call.outputs[0].shape)
    axis = operation.axis % rank
    tensors = [a for a in call.arguments if has_places(a)]
    if not all(isinstance(a, keras.KerasTensor) for a in tensors):
        return None
    parts = [atoms.of(tensor) for tensor in tensors]
    if all(part.shape[axis] == 1 for part in parts):
        return _put_together(atoms, parts, axis)
    along = []
    for tensor, part in zip(tensors, parts, strict=True):
        sizes = list(part.shape)
        sizes[axis] = tensor.shape[axis]
        along.append(np.broadcast_to(part, sizes))
    most = np.max([part.shape for part in along], axis=0)
    most[axis] = 1
    whole = [np.broadcast_to(part, np.maximum(part.shape, most)) for part in along]
    return np.concatenate(whole, axis)


def item(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows slices: by a number in code, units along that axis go whole."""
    array = atoms.of(call.inputs[0])
    args, _ = call.given
    key = args[1] if len(args) > 1 else getattr(operation, "key", None)
    keys = list(key) if isinstance(key, tuple) else [key]
    plain = (slice, int, np.integer, type(None), type(Ellipsis))
    if not all(isinstance(part, plain) for part in keys):  # an index of several numbers
        return None
    count = sum(part is not None and part is not Ellipsis for part in keys)
    rest = [slice(None)] * (array.ndim - count)
    at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    keys = [*keys[:at], *rest, *keys[at + 1 :]]
    axis = 0
    for part in keys:
        if part is None:
            array = np.expand_dims(array, axis)
        elif isinstance(part, slice):
            array = _sliced(atoms, array, part, axis)
        else:
            array = atoms.whole(array, axis).take(0, axis)
            axis -= 1
        axis += 1
    return array if array.ndim == len(call.outputs[0].shape) else None


def _sliced(atoms: Atoms, array: np.ndarray, part: slice, axis: int) -> np.ndarray:
    """Follows a slice; a third is taken for queries, keys or values, as of `Split`."""
    size = array.shape[axis]
    if (part.start, part.stop) == (None, None) and part.step in (None, -1):
        return array if part.step is None or size == 1 else np.flip(array, axis)
    start, stop, step = part.indices(size)
    if step != 1 or size == 1 or 3 * (stop - start) != size or 3 * start % size:
        return atoms.whole(array, axis)
    thirds = np.split(array, 3, axis)
    for other in thirds[1:]:
        atoms.join(thirds[0], other)
    return thirds[3 * start // size]
