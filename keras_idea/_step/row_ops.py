"""What each step of a pruning run computes over whole kernels, and how it counts.

A mask is `(F,)`, or `(E, F)` of experts, in {0, 1}: which neurons are active. Torch has
its own operations here: where nothing is compiled, one costs more than its arithmetic,
a call of `keras.ops` more than that, and `assign` a second pass over the weights.
"""

import keras
from keras import ops

from keras_idea._groups.cut import Cut
from keras_idea._typing import Tensor
from keras_idea.functional.importance import sensitivity

if keras.backend.backend() == "torch":
    import torch

    @torch.no_grad()
    def mean_sensitivity(
        kernel: Tensor, gradient: Tensor, axes: tuple[int, ...]
    ) -> Tensor:
        """Mean sensitivity, over the axes of a neuron's weights: `(F,)` or `(E, F)`."""
        return (kernel.float() * gradient.float()).abs_().mean(axes)

    @torch.no_grad()
    def zero_rows(cuts: list[Cut], mask: Tensor) -> None:
        """Zeroes the weights of the neurons that a mask prunes."""
        pruned = mask == 0
        for cut in cuts:
            cut.variable.value.masked_fill_(_spread(cut, pruned), 0.0)

    @torch.no_grad()
    def of_active(cut: Cut, values: Tensor, mask: Tensor) -> Tensor:
        """A variable's value or gradient, zero for pruned neurons: of NaN too."""
        return values.masked_fill(_spread(cut, mask == 0), 0.0)

    def _spread(cut: Cut, pruned: Tensor) -> Tensor:
        if cut.experts is not None or not cut.is_plain or cut.variable.ndim > 2:
            return cut.spread(pruned)
        return pruned[:, None] if cut.variable.ndim - cut.axis == 2 else pruned

    def known_count(count: Tensor) -> int | None:
        """A counter's value where reading it waits for nothing, else None.

        It waits on devices other than CPUs, and in a compiled step there is no number.
        """
        if torch.compiler.is_compiling():
            return None
        value = count.value if isinstance(count, keras.Variable) else count
        return int(value) if value.device.type == "cpu" else None
else:

    def mean_sensitivity(
        kernel: Tensor, gradient: Tensor, axes: tuple[int, ...]
    ) -> Tensor:
        """As above."""
        return ops.mean(sensitivity(kernel, gradient), axis=axes)

    def zero_rows(cuts: list[Cut], mask: Tensor) -> None:
        """As above."""
        for cut in cuts:
            cut.variable.assign(of_active(cut, cut.variable.value, mask))

    def of_active(cut: Cut, values: Tensor, mask: Tensor) -> Tensor:
        """As above."""
        return ops.where(cut.spread(mask, 1) > 0, values, ops.zeros_like(values))

    def known_count(count: Tensor) -> int | None:
        """As above."""
        return None
