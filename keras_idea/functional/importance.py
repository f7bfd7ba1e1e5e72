"""How important a neuron is: by its sensitivity, or by its activations.

All functions are pure `keras.ops`: traceable, without state, on any backend.

Shapes: B samples, T tokens, F = hidden_dim (neurons), M matrices.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

from keras import ops

from keras_idea._typing import Tensor
from keras_idea._validation import check_choice
from keras_idea.errors import ArgumentError

Reduction: TypeAlias = Literal["mean", "max"]
REDUCTIONS: dict[str, Callable[..., Tensor]] = {"mean": ops.mean, "max": ops.max}
Aggregation: TypeAlias = Literal["paper", "minitron"]
AGGREGATIONS = ("paper", "minitron")


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
            f"input_dim), for at least 2 matrices. Received: shape={shape}."
        )
    if len(shape) == 3:
        scores = REDUCTIONS[row_reduce](scores, axis=-1)
    return REDUCTIONS[matrix_reduce](scores, axis=0)


def activation_sums(
    hidden: Tensor,
    padding_mask: Tensor | None = None,
    aggregation: Aggregation = "paper",
) -> tuple[Tensor, Tensor]:
    r"""Sums the sizes of neurons' hidden activations `Z` over the samples of a batch.

    $$\sum_n \lVert Z^{(n)}_{:,i} \rVert_2 \text{ (paper)}, \qquad
    \sum_n \Bigl(\frac1T \sum_t |Z^{(n)}_{t,i}|\Bigr)^2 \text{ (minitron)}$$

    `hidden` is `(B, ..., F)`; `padding_mask`, `(B, ...)`, is 0 for a token that does
    not count. Returns the sums, `(F,)`, and the number of samples with a token that
    counts, both float32. Those of several batches add up.

    Source: IDEA Prune (arXiv 2503.05920); Minitron (arXiv 2407.14679).
    """
    hidden = ops.cast(hidden, "float32")
    batch = ops.shape(hidden)[0]
    hidden_BTF = ops.reshape(hidden, (batch, -1, hidden.shape[-1]))
    counts_BT = ops.ones_like(hidden_BTF[..., 0])
    if padding_mask is not None:
        counts_BT = ops.cast(ops.reshape(padding_mask, (batch, -1)), "float32")
    tokens_B1 = ops.sum(counts_BT, axis=1, keepdims=True)
    counts_BT1 = ops.expand_dims(counts_BT, -1)
    if aggregation == "paper":
        per_sample_BF = ops.sqrt(ops.sum(counts_BT1 * ops.square(hidden_BTF), axis=1))
    else:
        totals_BF = ops.sum(counts_BT1 * ops.abs(hidden_BTF), axis=1)
        per_sample_BF = ops.square(totals_BF / ops.maximum(tokens_B1, 1.0))
    samples = ops.sum(ops.cast(tokens_B1 > 0, "float32"))
    return ops.sum(per_sample_BF, axis=0), samples


def importance_of_sums(
    sums: Tensor, samples: float | Tensor, aggregation: Aggregation = "paper"
) -> Tensor:
    """Computes the importance `(F,)` from the `activation_sums` of all batches, added.

    Their mean over the samples ("paper"), or their square root ("minitron").
    """
    sums = ops.cast(sums, "float32")
    if aggregation == "minitron":
        return ops.sqrt(sums)
    return sums / ops.maximum(ops.cast(samples, "float32"), 1.0)
