"""Chooses the neurons that stay, exactly, and slices tensors to them."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_idea._typing import Tensor


def top_k_mask(
    importance: Tensor, k: int | Tensor, alive: Tensor | None = None
) -> Tensor:
    r"""Computes the mask of the k most important neurons: exactly k ones.

    $$m_i = 1 \text{ if } c_i \text{ is among the } k \text{ largest of the
    living}$$

    Ties keep the lower index. At least one neuron stays. No pruned neuron returns, so a
    larger k keeps all active ones. NaN counts as the least importance.

    Args:
        importance: tensor `(..., hidden_dim)`. Several FFNs are ranked separately.
        k: int or integer scalar tensor. The neurons to keep.
        alive: tensor of the same shape in {0, 1} or None. 1 marks the active neurons.
            Defaults to None: all.

    Returns:
        Tensor of the same shape, float32 in {0, 1}.

    Example:
    >>> keras.ops.convert_to_numpy(top_k_mask([1.0, 3.0, 3.0, 2.0], k=1)).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    importance = ops.cast(ops.convert_to_tensor(importance), "float32")
    alive = (
        ops.ones_like(importance, dtype="bool")
        if alive is None
        else ops.cast(alive, "float32") > 0
    )
    rankable = ops.logical_and(alive, ops.logical_not(ops.isnan(importance)))
    importance = ops.where(rankable, importance, -float("inf"))
    size = ops.shape(importance)[-1]
    k = ops.clip(ops.cast(k, "int32"), 1, size)
    # One sort and a threshold: which of the equal ones stay is decided below.
    threshold = ops.take(ops.sort(importance), size - k, axis=-1)
    threshold = ops.expand_dims(threshold, -1)
    above = importance > threshold
    ties = ops.logical_and(importance == threshold, alive)
    free = k - ops.sum(ops.cast(above, "int32"), axis=-1, keepdims=True)
    first_ties = ops.cumsum(ops.cast(ties, "int32"), axis=-1) <= free
    kept = ops.logical_or(above, ops.logical_and(ties, first_ties))
    return ops.cast(kept, "float32")


def take_neurons(
    tensor: Tensor,
    kept: Sequence[int] | np.ndarray | Tensor,
    axis: int,
    group: int | None = None,
) -> Tensor:
    """Slices a tensor to the kept neurons, on its own device.

    Args:
        tensor: tensor of any shape.
        kept: int array. Ascending indices of the kept neurons; `(groups, kept)` if each
            entry along `group` keeps others.
        axis: int. The axis of the neurons.
        group: int or None. The axis of experts that have their own neurons, before or
            after `axis`. None means that there is none. Defaults to None.

    Returns:
        Tensor whose `axis` has as many entries as neurons are kept.

    Example:
    >>> kernel = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    >>> keras.ops.convert_to_numpy(take_neurons(kernel, [0, 3], axis=1)).tolist()
    [[1, 4], [5, 8]]
    """
    kept = ops.convert_to_tensor(kept, dtype="int32")
    if group is None:
        return ops.take(tensor, kept, axis=axis)
    tensor = ops.reshape(tensor, tensor.shape)  # on tensorflow it is a variable
    others = [a for a in range(len(tensor.shape)) if a not in (group, axis)]
    return ops.take_along_axis(tensor, ops.expand_dims(kept, others), axis=axis)
