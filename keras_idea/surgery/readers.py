"""The kernels that read the units of groups, each as one matrix.

Shapes: R rows of such a matrix, D its outputs; F units of a group.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.functional.patches import patches, transposed_patches
from keras_idea.groups.channel_operations import channel_axis
from keras_idea.groups.kinds import KINDS, NEURONS
from keras_idea.keras_private.channels import SEPARABLE, TRANSPOSED
from keras_idea.methods.captures import KernelCapture, Look, capture_of
from keras_idea.typing import Tensor

#: The most numbers that a batch gives to fit a convolution on. Of more places, some are
#: drawn.
_BATCH_NUMBERS = 2**24
#: The most rows whose products are added up: each matrix of them takes half a GB.
MOST_ROWS = 8192


@dataclasses.dataclass(frozen=True, eq=False)
class Reader:
    """A kernel that reads the units of groups.

    Attributes:
        name: str, for messages: the group's, or the path of a layer that reads several.
        kernel: a Keras variable; as a matrix `(R, D)` it is multiplied with what is
            looked at.
        bias: the variable that is added to the product, or None.
        look: what looks at the other factor, `(..., R)`.
        outputs: int, D.
        rows: list of (group, the rows of each of its units: int array `(F, rows)`).
        swaps: bool, whether the kernel's last two axes are swapped in the matrix.
            Default False.
    """

    name: str
    kernel: keras.Variable
    bias: keras.Variable | None
    look: Look
    outputs: int
    rows: list[tuple[FFN, np.ndarray]]
    swaps: bool = False

    def matrix(self) -> np.ndarray:
        """Float64 array `(R, D)`, a copy."""
        values = ops.convert_to_numpy(ops.cast(self.kernel.value, "float32"))
        values = np.swapaxes(values, -1, -2) if self.swaps else values
        return values.reshape(self.total, -1).astype("float64")

    def assign(self, matrix_RD: np.ndarray) -> None:
        """Sets the kernel."""
        shape = tuple(self.kernel.shape)
        if self.swaps:
            swapped = (*shape[:-2], shape[-1], shape[-2])
            self.kernel.assign(np.swapaxes(matrix_RD.reshape(swapped), -1, -2))
        else:
            self.kernel.assign(matrix_RD.reshape(shape))

    @property
    def shares(self) -> bool:
        """bool, whether others may read its groups too: layers that read channels."""
        return any(KINDS[group.kind].by_readers for group, _ in self.rows)

    @property
    def total(self) -> int:
        """int, R."""
        return math.prod(self.kernel.shape) // self.outputs

    def gone(self, masks: dict[int, np.ndarray]) -> np.ndarray:
        """Int array, the rows of units that go; `masks` by the `id` of the group."""
        return np.concatenate(
            [rows[masks[id(group)] == 0].ravel() for group, rows in self.rows]
        )

    def kept(self, units: dict[int, int]) -> int:
        """int, the rows that stay if of each group, by its `id`, so many units do."""
        return self.total - sum(
            (len(rows) - units[id(group)]) * rows.shape[1] for group, rows in self.rows
        )


def readers_of(groups: Sequence[FFN]) -> list[Reader]:
    """The kernels that read groups; refuses those that cannot be fitted."""
    found: list[Reader] = []
    convolving: dict[int, Reader] = {}
    for group in groups:
        if not KINDS[group.kind].by_readers:
            found.append(_reader(group))
            continue
        cuts = group.weights.own_cuts()
        for layer, cut in zip(group.weights.readers, cuts, strict=True):
            kernel, entries = cut.variable, cut.entries
            assert entries is not None  # of channels
            if id(kernel) not in convolving:
                convolving[id(kernel)] = _sliding(group, layer, kernel)
            steps = kernel.shape[cut.axis] * np.arange(math.prod(kernel.shape[:-2]))
            rows = np.add.outer(entries.places, steps).reshape(group.hidden_dim, -1)
            convolving[id(kernel)].rows.append((group, rows))
    return [*found, *convolving.values()]


def _reader(group: FFN) -> Reader:
    """What reads neurons or heads."""
    if group.kind == NEURONS and group.weights.shown_by is None:
        raise ArgumentError(
            f"refit=True needs the hidden activations of {group.name}, which no "
            "single layer is called on (experts, or several layers that read "
            "them). Leave `refit` out, or exclude that group."
        )
    kernel = _first_axes(group)
    heads_apart = group.kind != NEURONS and len(kernel.shape) > 2
    outputs = math.prod(kernel.shape[2 if heads_apart else 1 :])
    rows = np.arange(math.prod(kernel.shape) // outputs).reshape(group.hidden_dim, -1)
    look = functools.partial(capture_of, group)
    bias = group.weights.reader_bias
    return Reader(group.name, kernel, bias, look, outputs, [(group, rows)])


def _first_axes(group: FFN) -> keras.Variable:
    """The kernel that reads a group, of which its units are the first axes."""
    last = group.kernel_cuts()[-1]
    first = last.axis == 0
    for reader in group.weights.readers[:1]:
        if group.kind != NEURONS and isinstance(reader, keras.layers.EinsumDense):
            inputs, kernel = reader.equation.split("->")[0].split(",")
            first = kernel[:2] == inputs[-2:]
    if not first:
        raise ArgumentError(
            f"refit cannot fit {group.name}: its heads are not the first axes of the "
            "kernel that reads them. Leave `refit` out."
        )
    return last.variable


def _sliding(group: FFN, layer: Any, kernel: keras.Variable) -> Reader:
    """A layer that reads channels, as it comes to those of one group."""
    kind = type(layer)
    if kind in SEPARABLE:
        read: Callable[[Any, int, Tensor], Tensor] = _by_depth
    elif kind in TRANSPOSED:
        read = _transposed
    elif kind is keras.layers.Dense:
        read = _dense
    elif layer.groups == 1:
        read = _convolution
    else:
        raise ArgumentError(
            f"refit=True fits a kernel that reads all channels, and '{layer.path}', "
            f"which reads {group.name}, reads them in groups. Leave `refit` out, or "
            "exclude that group."
        )
    swaps = kind in TRANSPOSED
    outputs = kernel.shape[-2 if swaps else -1]
    rows = math.prod(kernel.shape) // outputs
    if rows > MOST_ROWS:
        raise ArgumentError(
            "refit=True compares all pairs of numbers that a layer reads, and "
            f"'{layer.path}' reads {rows:,}, of {group.name} and others (at most "
            f"{MOST_ROWS:,}). Leave `refit` out, or exclude that group."
        )
    look = functools.partial(KernelCapture, layer, functools.partial(read, layer, rows))
    return Reader(layer.path, kernel, layer.bias, look, outputs, [], swaps)


def _most(rows: int, inputs: Tensor) -> int:
    return max(1, _BATCH_NUMBERS // (rows * inputs.shape[0]))


def _last(layer: Any, inputs: Tensor) -> Tensor:
    return ops.moveaxis(inputs, channel_axis(layer, inputs), -1)


def _dense(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    flat = ops.reshape(inputs, (inputs.shape[0], -1, rows))
    return patches(flat, [1], [1], [1], "valid", _most(rows, inputs))


def _convolution(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    slides = layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding
    return patches(_last(layer, inputs), *slides, _most(rows, inputs))


def _transposed(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    slides = layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding
    more = layer.output_padding or [None] * len(layer.kernel_size)
    return transposed_patches(_last(layer, inputs), *slides, more, _most(rows, inputs))


def _by_depth(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    """What the second kernel of a separable convolution is multiplied with."""
    made = ops.depthwise_conv(
        inputs,
        ops.cast(layer.depthwise_kernel, inputs.dtype),
        layer.strides,
        layer.padding,
        layer.data_format,
        layer.dilation_rate,
    )
    return _dense(layer, rows, _last(layer, made))
