"""What each step of a pruning run computes over whole kernels, and how it counts.

A mask is `(F,)`, or `(E, F)` of experts, in {0, 1}: which neurons live.
"""

import keras
from keras import ops

from keras_idea._groups.cut import Cut
from keras_idea._typing import Tensor
from keras_idea.functional.importance import sensitivity
from keras_idea.functional.masks import top_k_mask

if keras.backend.backend() == "torch":
    from keras_idea._step.row_ops_torch import (
        known_count,
        mean_sensitivity,
        narrower_mask,
        of_active,
        zero_rows,
    )
else:

    def mean_sensitivity(
        kernel: Tensor, gradient: Tensor, axes: tuple[int, ...]
    ) -> Tensor:
        """Mean sensitivity, over the axes of a neuron's weights: `(F,)` or `(E, F)`."""
        return ops.mean(sensitivity(kernel, gradient), axis=axes)

    def zero_rows(cuts: list[Cut], mask: Tensor) -> None:
        """Zeroes the weights of the neurons that a mask says are dead."""
        for cut in cuts:
            cut.variable.assign(of_active(cut, cut.variable.value, mask))

    def of_active(cut: Cut, values: Tensor, mask: Tensor) -> Tensor:
        """A variable's value or gradient, zero for pruned neurons: of NaN too."""
        return ops.where(cut.spread(mask, 1) > 0, values, ops.zeros_like(values))

    def narrower_mask(mask: Tensor, importance: Tensor, width: int) -> Tensor:
        """The mask of the `width` most important of the neurons that live."""
        return top_k_mask(importance, width, alive=mask)

    def known_count(count: Tensor) -> int | None:
        """A counter's value where reading it waits for nothing, else None.

        It does in a compiled step, which has no number, and on devices other than CPUs.
        """
        return None


__all__ = ["known_count", "narrower_mask", "mean_sensitivity", "of_active", "zero_rows"]
