"""What a convolution's kernel is multiplied with, place by place.

Shapes: B samples, C channels, K places that the kernel covers at once, P places of the
output.
"""

import math
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_idea.typing import Tensor


def patches(
    inputs: Tensor,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    dilation_rate: Sequence[int],
    padding: str,
    most: int | None = None,
) -> Tensor:
    r"""What the kernel covers at each place of a convolution's output.

    With a kernel of shape `(*kernel_size, C, D)`, the convolution is a product:

    $$\text{conv}(x) = \text{patches}(x) \, W, \qquad W \in \mathbb{R}^{KC \times D}$$

    `W` is the kernel, reshaped.

    Args:
        inputs: float tensor `(B, *spatial, C)`, with known sizes.
        kernel_size: ints >= 1, one for each spatial axis.
        strides: ints >= 1, likewise.
        dilation_rate: ints >= 1, likewise.
        padding: "valid", "same" or "causal".
        most: int >= 1 or None. The most places of the output: if there are more, these
            are drawn, always the same ones. Defaults to None: all.

    Returns:
        Tensor `(B, P, K * C)`, of the dtype of the inputs.

    Example:
    >>> x = np.arange(4.0).reshape(1, 4, 1)
    >>> ops.convert_to_numpy(patches(x, [2], [1], [1], "valid")).tolist()
    [[[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]]
    """
    axes = []
    slides = kernel_size, strides, dilation_rate
    for size, kernel, stride, dilation in zip(inputs.shape[1:-1], *slides, strict=True):
        covered = (kernel - 1) * dilation + 1
        before = missing = 0
        if padding == "causal":
            before = missing = covered - 1
        elif padding == "same":
            places = math.ceil(size / stride)
            missing = max((places - 1) * stride + covered - size, 0)
            before = missing // 2
        starts = np.arange(-before, size + missing - before - covered + 1, stride)
        at_PK = starts[:, None] + dilation * np.arange(kernel)
        axes.append(np.where(at_PK < size, at_PK, -1))
    return _taken(inputs, axes, most)


def transposed_patches(
    inputs: Tensor,
    kernel_size: Sequence[int],
    strides: Sequence[int],
    dilation_rate: Sequence[int],
    padding: str,
    output_padding: Sequence[int | None],
    most: int | None = None,
) -> Tensor:
    r"""What reaches each place of a transposed convolution's output.

    The same with a kernel of shape `(*kernel_size, D, C)`, whose last two axes are
    swapped in `W`: a place of the input reaches `kernel_size` places of the output, by
    `strides` apart. What does not reach a place counts as zeros.

    Args:
        inputs: float tensor `(B, *spatial, C)`, with known sizes.
        kernel_size: ints >= 1, one for each spatial axis.
        strides: ints >= 1, likewise.
        dilation_rate: ints >= 1, likewise.
        padding: "valid" or "same".
        output_padding: ints >= 0, likewise, or None, as of Keras's layers.
        most: as of `patches`.

    Returns:
        Tensor `(B, P, K * C)`, of the dtype of the inputs.

    Example:
    >>> x = np.array([[[1.0], [2.0]]])
    >>> ops.convert_to_numpy(
    ...     transposed_patches(x, [1], [2], [1], "valid", [None])
    ... ).tolist()
    [[[1.0], [0.0], [2.0], [0.0]]]
    """
    axes = []
    slides = kernel_size, strides, dilation_rate, output_padding
    for size, kernel, stride, dilation, more in zip(
        inputs.shape[1:-1], *slides, strict=True
    ):
        covered = (kernel - 1) * dilation + 1
        if padding == "valid":
            added = max(stride - covered, 0) if more is None else more
            left, right = covered - 1, covered - 1 + added
        else:
            both = covered + stride - 2
            if more is not None:
                both = covered + covered % 2 - 2 + more
            left = min((both + 1) // 2, covered - 1)
            right = both - left
        places = (size - 1) * stride + 1 + left + right - covered + 1
        # From the last entry of the kernel to the first.
        reaches = dilation * np.arange(kernel)[::-1]
        at_PK = np.arange(places)[:, None] + reaches - left
        of_input = (at_PK % stride == 0) & (at_PK >= 0) & (at_PK < size * stride)
        axes.append(np.where(of_input, at_PK // stride, -1))
    return _taken(inputs, axes, most)


def _taken(inputs: Tensor, axes: Sequence[np.ndarray], most: int | None) -> Tensor:
    """What lies at the places `(P, K)` of each axis; zeros where one is negative."""
    sizes, rank = tuple(inputs.shape[1:-1]), len(axes)
    spread = []
    for i, at_PK in enumerate(axes):
        shape = [1] * (2 * rank)
        shape[i], shape[rank + i] = at_PK.shape
        spread.append(at_PK.reshape(shape))
    every = np.stack(np.broadcast_arrays(*spread))
    at_PK = np.ravel_multi_index(tuple(np.maximum(every, 0)), sizes)
    at_PK = np.where((every >= 0).all(axis=0), at_PK, math.prod(sizes))
    at_PK = at_PK.reshape(math.prod(at.shape[0] for at in axes), -1)
    if most is not None and len(at_PK) > most:
        drawn = np.random.default_rng(0).permutation(len(at_PK))[:most]
        at_PK = at_PK[np.sort(drawn)]
    flat = ops.reshape(inputs, (inputs.shape[0], -1, inputs.shape[-1]))
    flat = ops.pad(flat, [(0, 0), (0, 1), (0, 0)])
    taken = ops.take(flat, at_PK.ravel(), axis=1)
    return ops.reshape(taken, (inputs.shape[0], len(at_PK), -1))
