"""`row_ops` for torch, in the fewest of its own operations.

Where nothing is compiled an operation costs more than its arithmetic, a call of
`keras.ops` more than an operation, and `assign` a second pass over the weights.
"""

import math

import keras
import torch

from keras_idea._groups.cut import Cut
from keras_idea._typing import Tensor
from keras_idea.functional.masks import top_k_mask


@torch.no_grad()
def mean_sensitivity(kernel: Tensor, gradient: Tensor, axes: tuple[int, ...]) -> Tensor:
    """See `row_ops`."""
    return (kernel.float() * gradient.float()).abs_().mean(axes)


@torch.no_grad()
def zero_rows(cuts: list[Cut], mask: Tensor) -> None:
    """See `row_ops`."""
    pruned = mask == 0
    for cut in cuts:
        cut.variable.value.masked_fill_(_spread(cut, pruned), 0.0)


@torch.no_grad()
def of_active(cut: Cut, values: Tensor, mask: Tensor) -> Tensor:
    """See `row_ops`."""
    return values.masked_fill(_spread(cut, mask == 0), 0.0)


def _spread(cut: Cut, pruned: Tensor) -> Tensor:
    several = cut.group is not None or cut.size > 1 or cut.scattered is not None
    if several or cut.variable.ndim > 2:
        return cut.spread(pruned)
    return pruned[:, None] if cut.variable.ndim - cut.axis == 2 else pruned


@torch.no_grad()
def narrower_mask(mask: Tensor, importance: Tensor, width: int) -> Tensor:
    """`top_k_mask` of one FFN, from what it loses: a few neurons a step."""
    if mask.ndim > 1:  # of experts, which lose as many each
        return top_k_mask(importance, width, alive=mask)
    alive = mask > 0
    lost = int(alive.sum()) - width
    if lost <= 0:
        return mask
    values = torch.nan_to_num(importance, nan=-math.inf, posinf=math.inf)
    values = values.masked_fill(~alive, math.inf)
    goes = values <= torch.topk(values, lost, largest=False).values.max()
    if int(goes.sum()) != lost:  # equals: of them those with the higher index go
        return top_k_mask(importance, width, alive=mask)
    return mask.masked_fill(goes, 0.0)


def known_count(count: Tensor) -> int | None:
    """See `row_ops`."""
    if torch.compiler.is_compiling():
        return None
    value = count.value if isinstance(count, keras.Variable) else count
    return int(value) if value.device.type == "cpu" else None
