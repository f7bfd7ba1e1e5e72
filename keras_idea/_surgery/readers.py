"""The kernels that read the units of groups, each as one matrix.

Shapes: R rows of such a matrix, D its outputs; F units of a group.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._finding.find import FFN
from keras_idea._graph.operations import channel_axis
from keras_idea._groups.kinds import KINDS, NEURONS
from keras_idea._keras.float32_products import float32_products
from keras_idea._typing import Tensor
from keras_idea.errors import ArgumentError
from keras_idea.methods.captures import Look, capture_of, kernel_capture

#: The most numbers that a batch gives to fit a convolution on. Of more places, some are
#: drawn.
_BATCH_NUMBERS = 2**24
_CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
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
    """

    name: str
    kernel: keras.Variable
    bias: keras.Variable | None
    look: Look
    outputs: int
    rows: list[tuple[FFN, np.ndarray]]

    def matrix(self) -> np.ndarray:
        """Float64 array `(R, D)`, a copy."""
        values = ops.convert_to_numpy(ops.cast(self.kernel.value, "float32"))
        return values.reshape(self.total, -1).astype("float64")

    def assign(self, matrix_RD: np.ndarray) -> None:
        """Sets the kernel."""
        self.kernel.assign(matrix_RD.reshape(self.kernel.shape))

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
    """Returns a layer that reads channels, as a group comes to it."""
    dense = type(layer) is keras.layers.Dense
    if not dense and (type(layer) not in _CONVOLUTIONS or layer.groups > 1):
        raise ArgumentError(
            f"refit=True does not support '{layer.path}', a {type(layer).__name__} "
            f"that reads {group.name}: only Dense layers and convolutions without "
            "groups. Leave `refit` out, or exclude that group."
        )
    outputs = kernel.shape[-1]
    rows = math.prod(kernel.shape) // outputs
    if rows > MOST_ROWS:
        raise ArgumentError(
            f"'{layer.path}' reads {rows:,} numbers per output; refit=True supports "
            f"at most {MOST_ROWS:,}. Leave `refit` out, or exclude {group.name}."
        )
    read = functools.partial(_flat if dense else _patches, layer, rows)
    look = functools.partial(kernel_capture, layer, read)
    return Reader(layer.path, kernel, layer.bias, look, outputs, [])


def _flat(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    flat = ops.reshape(inputs, (inputs.shape[0], -1, rows))
    return _drawn(flat, _BATCH_NUMBERS // (rows * inputs.shape[0]))


def _patches(layer: Any, rows: int, inputs: Tensor) -> Tensor:
    """Returns what the kernel `(rows, D)` of a convolution is multiplied with.

    `(samples, places, rows)`. As in `keras.ops.image.extract_patches`, the patches are
    a convolution with an identity matrix; here of any rank, and with causal padding.
    """
    outputs = layer.compute_output_shape((1, *inputs.shape[1:]))
    places = math.prod(outputs) // layer.filters
    inputs = ops.moveaxis(inputs, channel_axis(layer, inputs), -1)
    padding = layer.padding
    if padding == "causal":
        before = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
        inputs, padding = ops.pad(inputs, [(0, 0), (before, 0), (0, 0)]), "valid"
    identity = ops.reshape(
        ops.eye(rows, dtype=inputs.dtype), (*layer.kernel_size, -1, rows)
    )
    most = _BATCH_NUMBERS // (rows * inputs.shape[0])
    at_once = max(1, _BATCH_NUMBERS // (rows * places))
    found = []
    for start in range(0, inputs.shape[0], at_once):
        part = inputs[start : start + at_once]
        with float32_products():
            patches = ops.conv(
                part,
                identity,
                layer.strides,
                padding,
                "channels_last",
                layer.dilation_rate,
            )
        found.append(_drawn(ops.reshape(patches, (-1, places, rows)), most))
    return ops.concatenate(found)


def _drawn(patches: Tensor, most: int) -> Tensor:
    """Returns at most so many places of `(samples, places, rows)`, always the same."""
    places, most = patches.shape[1], max(1, most)
    if places <= most:
        return patches
    drawn = np.random.default_rng(0).permutation(places)[:most]
    return ops.take(patches, np.sort(drawn), axis=1)
