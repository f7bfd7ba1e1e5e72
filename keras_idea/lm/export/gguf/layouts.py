"""How KerasHub's weights lie in a GGUF file: output axis first, one matrix each.

Shapes: D the model's width, H heads, K the size of a head, I inputs, O outputs.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping

import keras
import numpy as np

from keras_idea.errors import ExportRefused

#: Function of a variable's array that returns it as the file has it.
Layout = Callable[[np.ndarray], np.ndarray]
#: Rows of a tensor: a variable's path, inside its block if it is in one, and layout.
Part = tuple[str, Layout]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of the file, made when it is written.

    Attributes:
        name: str, llama.cpp's.
        parts: tuple of (variable or array, layout), one above the other.
    """

    name: str
    parts: tuple[tuple[keras.Variable | np.ndarray, Layout], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of int, as in NumPy: of a matrix (O, I)."""
        shapes = [
            layout(np.broadcast_to(np.float32(0), tuple(value.shape))).shape
            for value, layout in self.parts
        ]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def values(self) -> np.ndarray:
        """float32 array."""
        arrays = [
            layout(keras.ops.convert_to_numpy(value).astype("float32"))
            for value, layout in self.parts
        ]
        return np.ascontiguousarray(np.concatenate(arrays))


# KerasHub leaves the names of these layers to Keras, which counts them.
_COUNTED = re.compile(r"(?<=_moe_block)_\d+(?=/)")
#: Names of tensors -> the parts that make them.
Places = Mapping[str, tuple[Part, ...]]


def tensors(
    backbone: keras.Model,
    ends: Places,
    block: Places,
    follows: Collection[str] = (),
) -> list[Tensor]:
    """The tensors of a stock KerasHub backbone, in the order of the blocks.

    Args:
        backbone: a stock KerasHub backbone.
        ends: dict, full name of a tensor -> its parts; those whose variables the
            backbone lacks are left out.
        block: dict, as `ends`, of one block: a name without "blk.0." before it.
        follows: collection of str, paths in a block that the file does without.

    Raises:
        ExportRefused: if the backbone holds a variable that has no place, or lacks one.
    """
    blocks = [_inside(layer) for layer in backbone.transformer_layers]
    in_blocks = {id(variable) for inside in blocks for variable in inside.values()}
    outside = {
        "/".join(variable.path.split("/")[-2:]): variable
        for variable in _weights(backbone)
        if id(variable) not in in_blocks
    }
    found = [_tensor(name, parts, outside) for name, parts in ends.items()]
    _check_all_placed(backbone, outside, ends)
    for index, inside in enumerate(blocks):
        _check_all_placed(backbone, inside, block, follows)
        for name, parts in block.items():
            found.append(_tensor(f"blk.{index}.{name}", parts, inside))
            if found[-1] is None:
                _refuse(backbone, f"has no {parts[0][0]!r} in block {index}")
    return [tensor for tensor in found if tensor is not None]


def _inside(block: keras.layers.Layer) -> dict[str, keras.Variable]:
    """A block's variables by their paths, without the block's own name."""
    # Some are built before their block is, and do not name it.
    before = f"{block.name}/"
    return {_COUNTED.sub("", v.path.rpartition(before)[2]): v for v in _weights(block)}


def _weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """A layer's variables, but the states of what draws random numbers: dropout."""
    return [v for v in layer.variables if v.name != "seed_generator_state"]


def _tensor(
    name: str, parts: tuple[Part, ...], variables: Mapping[str, keras.Variable]
) -> Tensor | None:
    """The tensor, or None if its variables are not there."""
    if any(path not in variables for path, _ in parts):
        return None
    return Tensor(name, tuple((variables[path], layout) for path, layout in parts))


def _check_all_placed(
    backbone: keras.Model,
    variables: Collection[str],
    places: Places,
    follows: Collection[str] = (),
) -> None:
    placed = {path for parts in places.values() for path, _ in parts}
    for path in variables:
        if path not in placed and path not in follows:
            _refuse(backbone, f"holds {path!r}, for which GGUF has no place")


def _refuse(backbone: keras.Model, what: str) -> None:
    raise ExportRefused(
        f"This {type(backbone).__name__} cannot become a GGUF file: it {what}."
    )


def as_it_is(array: np.ndarray) -> np.ndarray:
    """An embedding, or the scale of a norm."""
    return array


def plus_one(array_D: np.ndarray) -> np.ndarray:
    """The scale of Gemma's norms, which KerasHub stores less one."""
    return array_D + np.float32(1)


def flat(array: np.ndarray) -> np.ndarray:
    """A bias of any shape, as a vector."""
    return array.reshape(-1)


def matrix(kernel_IO: np.ndarray) -> np.ndarray:
    """A Dense kernel."""
    return kernel_IO.T


def experts(array: np.ndarray) -> np.ndarray:
    """The matrices of a mixture's experts, (E, I, O), one after the other."""
    return array.swapaxes(1, 2)


def first_half(layout: Layout) -> Layout:
    """A layout of the first half of the last axis: of two matrices side by side."""
    return lambda array: layout(array[..., : array.shape[-1] // 2])


def second_half(layout: Layout) -> Layout:
    """A layout of the second half, as `first_half`."""
    return lambda array: layout(array[..., array.shape[-1] // 2 :])


def every_second(layout: Layout, first: int) -> Layout:
    """A layout of every second column, from `first`, 0 or 1, on."""
    return lambda array: layout(array[..., first::2])


def heads(kernel_DHK: np.ndarray) -> np.ndarray:
    """Queries, keys or values."""
    return kernel_DHK.reshape(kernel_DHK.shape[0], -1).T


def heads_first(kernel_HDK: np.ndarray) -> np.ndarray:
    """Gemma's queries, keys or values."""
    return kernel_HDK.transpose(0, 2, 1).reshape(-1, kernel_HDK.shape[1])


def from_heads(kernel_HKD: np.ndarray) -> np.ndarray:
    """The matrix after attention."""
    return kernel_HKD.reshape(-1, kernel_HKD.shape[-1]).T


def paired(kernel_DHK: np.ndarray) -> np.ndarray:
    """Queries or keys of a Llama, whose llama.cpp rotates neighbours.

    KerasHub, as Hugging Face, rotates element i of a head with element i + K / 2;
    llama.cpp's "llama" rotates 2 i with 2 i + 1. Its converter permutes the rows.
    """
    d, h, k = kernel_DHK.shape
    rows = kernel_DHK.transpose(1, 2, 0).reshape(h, 2, k // 2, d)
    return rows.swapaxes(1, 2).reshape(h * k, d)


def fused(array: np.ndarray) -> np.ndarray:
    """Queries, keys and values, (D, H, 3 K), given head by head, as all queries first.

    Of biases: (H, 3 K).
    """
    num_heads, size = array.shape[-2], array.shape[-1] // 3
    rows = array.reshape(-1, num_heads, 3, size).transpose(2, 1, 3, 0)
    return rows.reshape(3 * num_heads * size, *array.shape[:-2])


def scaled(layout: Layout, factor: float) -> Layout:
    """A layout whose values are multiplied by a factor, too."""
    if factor == 1.0:
        return layout
    return lambda array: layout(array) * np.float32(factor)
