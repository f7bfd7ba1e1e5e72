"""How important a neuron is: sensitivity, its moving average, its reduction.

All functions are pure `keras.ops`: traceable, without state, on any backend.
Source: IDEA Prune (arXiv 2503.05920), equations for sensitivity, importance
scores and neuron importance.
"""

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from keras import ops

from keras_idea._typing import Tensor
from keras_idea._validation import check_choice
from keras_idea.errors import ArgumentError

Reduction: TypeAlias = Literal["mean", "max"]
REDUCTIONS: dict[str, Callable[..., Tensor]] = {"mean": ops.mean, "max": ops.max}


def sensitivity(kernel: Tensor, gradient: Tensor) -> Tensor:
    r"""Computes the first-order change of the loss when a weight is removed.

    $$T_{ij} = |g_{ij} \, w_{ij}|$$

    Args:
        kernel: tensor of any shape. The weights `w`.
        gradient: tensor of the same shape. The gradient `g` of the mini-batch loss at
            these weights (before the update).

    Returns:
        Tensor of the same shape, float32, at least zero.

    Example:
    >>> keras.ops.convert_to_numpy(sensitivity([1.0, -2.0], [3.0, 0.5])).tolist()
    [3.0, 1.0]
    """
    return ops.abs(ops.cast(kernel, "float32") * ops.cast(gradient, "float32"))


def memory_steps(ema_decay: float, share: float = 1e-8) -> int:
    """Steps after which a moving average has forgotten: `ceil(log share / log decay)`.

    What lies k steps back weighs `decay^k` of what is new; a weight of `share` counts
    as nothing.

    Example:
    >>> memory_steps(0.4)
    21
    """
    if ema_decay == 0.0:
        return 1
    return math.ceil(math.log(share) / math.log(ema_decay))


def ema(new: Tensor, old: Tensor, decay: float) -> Tensor:
    r"""Computes an exponential moving average, without bias correction.

    $$\tilde S_t = (1 - \lambda) \, T_t + \lambda \, \tilde S_{t-1}$$

    Args:
        new: tensor. The newest value.
        old: tensor of the same shape. The average so far (zero at first).
        decay: float in [0, 1). The weight of the past.

    Returns:
        Tensor of the same shape.

    Example:
    >>> ema(1.0, 0.0, decay=0.4)
    0.6
    """
    return (1.0 - decay) * new + decay * old


def reduce_rows(
    values: Tensor, axis: int | tuple[int, ...], row_reduce: Reduction
) -> Tensor:
    """Reduces the scores of each neuron's weights to one number: the paper's f1.

    Args:
        values: tensor. The scores of a kernel's weights.
        axis: int or tuple of int. The axes of the weights that belong to one neuron.
        row_reduce: str. "mean" or "max".

    Returns:
        Tensor with `axis` removed.

    Raises:
        ValueError: If the reduction is unknown.
    """
    return REDUCTIONS[check_choice("row_reduce", row_reduce, list(REDUCTIONS))](
        values, axis=axis
    )


def neuron_importance(
    scores: Tensor, row_reduce: Reduction = "mean", matrix_reduce: Reduction = "max"
) -> Tensor:
    r"""Computes the importance of each neuron from the scores of its rows.

    $$c_k = f_2(f_1(S^{up}_{k,:}), f_1(S^{gate}_{k,:}), f_1(S^{down}_{k,:}))$$

    Args:
        scores: tensor `(M, hidden_dim, input_dim)`, or `(M, hidden_dim)` if the rows
            are already reduced. M >= 2 is the number of matrices: up, gate and down, or
            up and down.
        row_reduce: str. "mean" or "max", f1 (not for 2-D scores). Defaults to "mean".
        matrix_reduce: str. "mean" or "max", f2. Defaults to "max".

    Returns:
        Tensor `(hidden_dim,)`.

    Raises:
        ValueError: If a reduction is unknown, or if the scores have another shape.

    Example:
    >>> importance = neuron_importance([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]])
    >>> keras.ops.convert_to_numpy(importance).tolist()
    [3.0, 2.0]
    """
    check_choice("row_reduce", row_reduce, list(REDUCTIONS))
    check_choice("matrix_reduce", matrix_reduce, list(REDUCTIONS))
    scores = ops.convert_to_tensor(scores)
    shape = ops.shape(scores)
    if len(shape) not in (2, 3) or shape[0] < 2:
        raise ArgumentError(
            "`scores` must have shape (matrices, hidden_dim) or (matrices, hidden_dim, "
            "input_dim), a row for each matrix: up, gate and down, or up and down. "
            f"Received: shape={shape}."
        )
    if len(shape) == 3:
        scores = reduce_rows(scores, -1, row_reduce)
    return REDUCTIONS[matrix_reduce](scores, axis=0)
