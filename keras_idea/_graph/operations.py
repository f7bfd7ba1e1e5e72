"""What operations do to the atoms of what they are given.

There are three kinds of rules. What combines numbers place by place joins them
(`each`). What moves numbers does the same to their atoms (`reshaped`, ...). A sum of
products (`product`) joins what is multiplied; what is summed over goes together.

A rule returns the atoms of the (only) output, a list of those of several, None if it
mixes or reads them, or a reason in words.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph import moves
from keras_idea._graph.atoms import Atoms, Made, Rule, at_axis, has_places
from keras_idea._keras.channels import channel_axis
from keras_idea._keras.layers import own_weights
from keras_idea._keras.symbolic import Call

#: Operations on numbers of one place. None makes something infinite of zeros, which a
#: weight of zero would not take away.
_EACH = """Absolute Add Cast Celu Clip ConvertToTensor Divide Elu Erf Exp Expm1 Gelu
    HardShrink HardSigmoid HardSilu HardTanh LeakyRelu Log1p LogSigmoid Maximum Minimum
    Multiply Negative Relu Relu6 Selu Sigmoid Silu SoftShrink Softplus Softsign
    Square StopGradient Subtract Tanh TanhShrink TrueDivide Where"""
_SPATIAL = "AveragePool MaxPool Resize"
#: Operations that mix the numbers along some axes, and keep the others apart.
_ACROSS = """All Amax Amin Any Cumprod Cumsum Flip LogSoftmax Logsumexp Max Mean Min
    Pad Roll Softmax Sort Std Sum Var"""
_CONSTANTS = "FullLike OnesLike ZerosLike"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def each(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows numbers that are combined place by place, with broadcasting."""
    rank = len(call.outputs[0].shape)
    layer = operation if isinstance(operation, keras.layers.Layer) else None
    held = own_weights(layer)[0] if layer else vars(operation).values()
    given = [a for a in [*call.arguments, *held] if has_places(a)]
    tensors = [a for a in given if isinstance(a, keras.KerasTensor)]
    if type(operation).__name__ in ("Divide", "TrueDivide"):
        below = call.arguments[-1]
        if isinstance(below, keras.KerasTensor):
            varies = atoms.of(below).size > 1
        else:
            varies = isinstance(below, keras.Variable) and has_places(below)
        if varies:
            return "something is divided by it"
    found = [_ahead(atoms.of(tensor), rank) for tensor in tensors]
    vary = [a for a in range(rank) if any(part.shape[a] > 1 for part in found)]
    for argument in given:
        if isinstance(argument, keras.Variable):
            shape = (1,) * (rank - len(argument.shape)) + tuple(argument.shape)
            wide = [axis for axis in range(rank) if shape[axis] > 1]
            axes = [axis for axis in wide if axis in vary] if vary else wide[-1:]
            if len(axes) > 1:
                name = type(operation).__name__
                return f"{name} has a variable of several axes"
            for axis in axes:
                behind = axis - (rank - len(argument.shape))
                along = atoms.along_variable(argument, behind, "own", layer)
                found.append(at_axis(along, axis, rank))
    if not found:
        return None
    first = max(found, key=lambda part: part.size)
    vary = [axis for axis in range(rank) if first.shape[axis] > 1]
    for argument in given:
        if isinstance(argument, keras.Variable) or id(argument) in atoms.uniform:
            continue
        follows = isinstance(argument, keras.KerasTensor)
        if follows and not atoms.are_fixed(atoms.of(argument)):
            continue
        # What stays has numbers along some axes: along these the units go whole.
        shape = (1,) * (rank - len(argument.shape)) + tuple(argument.shape)
        axes = [axis for axis in vary if shape[axis] != 1]
        if axes and len(axes) == len(vary):
            why = "a constant has a number of its own for each"
            if follows:
                why = f"combined with: {atoms.reasons[atoms.of(argument).ravel()[0]]}"
            atoms.settle(first, why)
        first = atoms.whole(first, *axes)
    for other in found:
        if other is not first and not atoms.are_fixed(other):
            atoms.join(first, other)
    if all(id(argument) in atoms.uniform for argument in given):
        atoms.uniform.add(id(call.outputs[0]))
    return first


def _ahead(array: np.ndarray, rank: int) -> np.ndarray:
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def product(
    atoms: Atoms,
    arrays: Sequence[np.ndarray],
    shapes: Sequence[Sequence[int]],
    given: Sequence[str],
    made: str,
) -> np.ndarray:
    """Follows a sum of products of tensors, by the letters of their axes.

    What stands at one place is one; what is summed over goes together.
    """
    space = sorted(set("".join(given)) | set(made))
    for array, letters, shape in zip(arrays, given, shapes, strict=True):
        if not atoms.are_fixed(array):
            continue
        for other, theirs in zip(arrays, given, strict=True):
            # What stays has numbers along an axis of units: so do these.
            for letter in set(letters) & set(theirs):
                axis, place = letters.index(letter), theirs.index(letter)
                if other.shape[place] > array.shape[axis] and shape[axis] != 1:
                    why = atoms.reasons[array.ravel()[0]]
                    atoms.settle(other, f"combined with: {why}")
    spread = []
    for array, letters in zip(arrays, given, strict=True):
        order = [letters.index(letter) for letter in sorted(letters)]
        shape = [
            array.shape[letters.index(letter)] if letter in letters else 1
            for letter in space
        ]
        spread.append(array.transpose(order).reshape(shape))
    lead = max(spread, key=lambda array: array.size)
    free = [array for array in spread if not atoms.are_fixed(array)]
    for other in spread:
        if other is not lead and other.size > 1:
            atoms.join(lead, other)
    if len(free) > 1:
        atoms.attended.append([array.ravel() for array in free])
    summed = [i for i, letter in enumerate(space) if letter not in made]
    lead = atoms.whole(lead, *summed)
    names = [letter for letter in space if letter in made]
    kept = lead.reshape([lead.shape[space.index(letter)] for letter in names])
    return kept.transpose([names.index(letter) for letter in made])


def kernel_product(
    atoms: Atoms, array: np.ndarray, letters: str, kernel: Any, layer: Any
) -> Made:
    """Follows a sum of products of a tensor and a variable: `letters` "ab,bc->ac".

    The letters that only the variable has are made, those of the tensor too are read.
    One axis of the variable numbers the units that it makes, and one those it reads;
    along its others they go whole.
    """
    given, made = letters.split("->")
    x, k = given.split(",")
    wide = [axis for axis in range(len(k)) if kernel.shape[axis] > 1]
    rows = [axis for axis in wide if k[axis] in x and k[axis] not in made]
    columns = [a for a in range(len(k)) if k[a] in made and k[a] not in x]
    columns.sort(key=lambda axis: kernel.shape[axis] == 1)
    batch = [x.index(k[axis]) for axis in wide if k[axis] in x and k[axis] in made]
    if any(array.shape[axis] > 1 for axis in batch):
        return "its kernel has numbers for each"
    if rows:
        rows.sort(key=lambda axis: array.shape[x.index(k[axis])] == 1)
        at = x.index(k[rows[0]])
        if array.size > 1 and array.shape[at] == 1:
            why = "its units lie along another axis"
            atoms.settle(array, why)
            array = atoms.new(1, why).reshape((1,) * array.ndim)
        array = atoms.whole(array, *(axis for axis in range(array.ndim) if axis != at))
        own = atoms.along_variable(kernel, rows[0], "reads", layer)
        atoms.join(array, at_axis(own, at, len(x)))
    if not columns:
        return atoms.new(1, "its kernel makes one number").reshape((1,) * len(made))
    own = atoms.along_variable(kernel, columns[0], "makes", layer)
    return at_axis(own, made.index(k[columns[0]]), len(made))


def letters_of(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Returns the letters of each part of an equation, and of what is made.

    Letters stand in the place of an ellipsis.

    Example:
    >>> letters_of("...a,ab->...b", (3, 2))
    (['YZa', 'ab'], 'YZb')
    """
    left, made = equation.replace(" ", "").split("->")
    parts = left.split(",")
    more = [
        rank - len(part.replace("...", "")) if "..." in part else 0
        for part, rank in zip(parts, ranks, strict=True)
    ]
    free = "UVWXYZ"
    parts = [
        part.replace("...", free[len(free) - count :])
        for part, count in zip(parts, more, strict=True)
    ]
    return parts, made.replace("...", free[len(free) - max(more) :])


def _einsum(atoms: Atoms, operation: Any, call: Call) -> Made:
    args = [a for a in call.arguments if hasattr(a, "shape")]
    return _multiplied(atoms, operation.subscripts, args)


def _matmul(atoms: Atoms, operation: Any, call: Call) -> Made:
    args = list(call.arguments[:2])
    if len(args) < 2 or any(len(getattr(a, "shape", ())) < 2 for a in args):
        return None
    ranks = [len(a.shape) for a in args]
    batch = _LETTERS[3 : max(ranks) + 1]
    first, second = (batch[len(batch) - (rank - 2) :] for rank in ranks)
    equation = f"{first}ab,{second}bc->{batch}ac"
    return _multiplied(atoms, equation, args)


def _multiplied(atoms: Atoms, equation: str, args: Sequence[Any]) -> Made:
    """Follows a product of tensors, or of one tensor and one variable."""
    if "->" not in equation:
        return None
    given, made = letters_of(equation, [len(a.shape) for a in args])
    tensors = [a for a in args if isinstance(a, keras.KerasTensor)]
    if len(tensors) == len(args):
        arrays = [atoms.of(tensor) for tensor in tensors]
        return product(atoms, arrays, [t.shape for t in tensors], given, made)
    if len(args) == 2 and len(tensors) == 1:
        first = 0 if args[0] is tensors[0] else 1  # == would make another tensor
        kernel = args[1 - first]
        if isinstance(kernel, keras.Variable):
            letters = f"{given[first]},{given[1 - first]}->{made}"
            return kernel_product(atoms, atoms.of(tensors[0]), letters, kernel, None)
    return None


def attention(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows `keras.ops.dot_product_attention`: query heads share key/value heads."""
    query, key, value = (atoms.of(tensor) for tensor in call.inputs[:3])
    heads = call.inputs[0].shape[2]

    def of_queries(array: np.ndarray, tensor: keras.KerasTensor) -> np.ndarray:
        times = heads // tensor.shape[2]
        return np.repeat(array, times, 2) if array.shape[2] > 1 else array

    key = of_queries(key, call.inputs[1])
    value = of_queries(value, call.inputs[2])
    shapes = [tuple(call.inputs[0].shape)] * 2
    scores = product(atoms, [query, key], shapes, ["btnh", "bsnh"], "bnts")
    for other in call.inputs[3:]:  # a bias of each head
        if len(other.shape) == 4 and other.shape[1] > 1:
            atoms.join(scores, atoms.of(other))
    shapes = [(1, heads, 1, 1), shapes[0]]
    return product(atoms, [scores, value], shapes, ["bnts", "bsnh"], "btnh")


def _taken(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows `Take`: rows of a table, by indices that are no units."""
    args = call.arguments
    axis = operation.axis
    if axis is None or not has_places(args[0]):
        return None
    rank = len(args[0].shape)
    if isinstance(args[0], keras.Variable):
        if axis % rank == rank - 1:
            return None
        along = atoms.along_variable(args[0], -1, "makes", None)
        return at_axis(
            along, len(call.outputs[0].shape) - 1, len(call.outputs[0].shape)
        )
    array = atoms.of(args[0])
    if array.shape[axis] > 1:
        return None
    behind = array.shape[axis % rank + 1 :]
    middle = (1,) * (len(call.outputs[0].shape) - rank + 1)
    return array.reshape(array.shape[: axis % rank] + middle + behind)


def _constant(atoms: Atoms, operation: Any, call: Call) -> Made:
    atoms.uniform.add(id(call.outputs[0]))
    return atoms.constant(call.outputs[0], "a constant")


def across(atoms: Atoms, operation: Any, call: Call) -> Made:
    """Follows what mixes numbers along some axes, or reduces them."""
    array, rank = atoms.of(call.inputs[0]), len(call.inputs[0].shape)
    axes = getattr(operation, "axis", -1)
    axes = range(rank) if axes is None else np.atleast_1d(axes)
    if hasattr(operation, "pad_width"):
        widths = np.broadcast_to(operation.pad_width, (rank, 2))
        axes = np.flatnonzero(widths.any(1))
    axes = tuple(int(axis) % rank for axis in axes)
    reduced = len(call.outputs[0].shape) < rank
    if any(array.shape[axis] > 1 for axis in axes):
        reduces = reduced or getattr(operation, "keepdims", False)
        name = type(operation).__name__
        return f"{name} {'reduces' if reduces else 'mixes'} it"
    return array.squeeze(axes) if reduced else array


def spatial(atoms: Atoms, layer: Any, call: Call) -> Made:
    """Follows what moves or joins places, and no channels."""
    given, made = call.inputs[0], call.outputs[0]
    along = atoms.along(given, channel_axis(layer, given), f"'{layer.name}' joins it")
    return at_axis(along, channel_axis(layer, made), len(made.shape))


#: Names of operations -> their rule.
RULES: dict[str, Rule] = {
    **dict.fromkeys(_EACH.split(), each),
    **dict.fromkeys(_SPATIAL.split(), spatial),
    **dict.fromkeys(_ACROSS.split(), across),
    **dict.fromkeys(_CONSTANTS.split(), _constant),
    "BroadcastTo": each,
    "Concatenate": moves.concatenated,
    "DotProductAttention": attention,
    "Einsum": _einsum,
    "ExpandDims": moves.reshaped,
    "GetItem": moves.item,
    "Matmul": _matmul,
    "Moveaxis": moves.by(np.moveaxis, "source", "destination"),
    "Pad": across,
    "Repeat": moves.by(np.repeat, "repeats", "axis"),
    "Reshape": moves.reshaped,
    "Split": moves.split,
    "Squeeze": moves.reshaped,
    "Stack": moves.stacked,
    **dict.fromkeys(("SwapAxes", "Swapaxes"), moves.by(np.swapaxes, "axis1", "axis2")),
    "Take": _taken,
    "Tile": moves.by(np.tile, "repeats"),
    "Transpose": moves.by(np.transpose, "axes"),
    "Unstack": moves.unstacked,
}
#: Rules that follow variables among the arguments themselves.
OF_VARIABLES = (each, _einsum, _matmul, _taken)
