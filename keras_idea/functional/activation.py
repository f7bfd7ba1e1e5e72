"""How important a neuron is by the size of its activations.

The hidden activations are those that the down projection reads,
`Z = activation(up^T x) * (gate^T x)`. Statistics of several batches add up, so
that streaming one sample at a time equals one batch.

Shapes: B samples, T tokens, F = hidden_dim (neurons).
"""

from typing import Literal, TypeAlias

from keras import ops

from keras_idea._typing import Tensor
from keras_idea._validation import check_choice

Aggregation: TypeAlias = Literal["paper", "minitron"]
AGGREGATIONS = ("paper", "minitron")


def activation_importance(
    hidden: Tensor,
    padding_mask: Tensor | None = None,
    aggregation: Aggregation = "paper",
) -> Tensor:
    r"""Computes each neuron's importance from the hidden activations of B samples.

    $$c_i = \frac1B \sum_n \lVert Z^{(n)}_{:,i} \rVert_2 \qquad\text{(paper)}$$

    $$c_i = \sqrt{\sum_n \Bigl(\frac1T \sum_t |Z^{(n)}_{t,i}|\Bigr)^2}
    \qquad\text{(minitron)}$$

    Args:
        hidden: tensor `(B, ..., F)`. The middle axes are the sequence.
        padding_mask: tensor `(B, ...)` or None. 0 or False marks a token as padding,
            which does not count. None counts all tokens. Defaults to None.
        aggregation: str. "paper": L2 over the sequence, mean over the samples, as IDEA
            Prune prints it. "minitron": mean of the magnitudes over the sequence, L2
            over the samples, as NVIDIA's tool computes it. Defaults to "paper".

    Returns:
        Tensor `(F,)`, float32, at least zero.

    Raises:
        ValueError: If the aggregation is unknown.

    Example:
    >>> importance = activation_importance(np.array([[[3.0, 1.0], [4.0, 0.0]]]))
    >>> keras.ops.convert_to_numpy(importance).tolist()
    [5.0, 1.0]

    Source: IDEA Prune (arXiv 2503.05920), after Minitron (arXiv 2407.14679).
    """
    sums, samples = activation_sums(hidden, padding_mask, aggregation)
    return importance_of_sums(sums, samples, aggregation)


def activation_sums(
    hidden: Tensor,
    padding_mask: Tensor | None = None,
    aggregation: Aggregation = "paper",
) -> tuple[Tensor, Tensor]:
    """Computes what one batch of samples adds to the sums of `importance_of_sums`.

    Args:
        hidden: tensor `(B, ..., F)`. The hidden activations.
        padding_mask: tensor or None. As for `activation_importance`. Defaults to None.
        aggregation: str. As for `activation_importance`. Defaults to "paper".

    Returns:
        Tensor `(F,)`, the sum over the samples, and a scalar, the number of samples
        with a token that counts. Both are float32.

    Raises:
        ValueError: If the aggregation is unknown.
    """
    check_choice("aggregation", aggregation, AGGREGATIONS)
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
    """Computes the importance from the added sums of all batches.

    Args:
        sums: tensor `(F,)`. The `activation_sums` of all batches, added.
        samples: scalar. The number of samples in them.
        aggregation: str. As for `activation_importance`. Defaults to "paper".

    Returns:
        Tensor `(F,)`, float32.

    Raises:
        ValueError: If the aggregation is unknown.
    """
    check_choice("aggregation", aggregation, AGGREGATIONS)
    sums = ops.cast(sums, "float32")
    if aggregation == "minitron":
        return ops.sqrt(sums)
    return sums / ops.maximum(ops.cast(samples, "float32"), 1.0)
