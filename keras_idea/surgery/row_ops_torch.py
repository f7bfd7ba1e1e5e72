"""`row_ops` for torch, in the fewest of its own operations.

Where nothing is compiled an operation costs more than its arithmetic, a call of
`keras.ops` more than an operation, and `assign` a second pass over the weights.
"""

import keras
import torch

from keras_idea.typing import Tensor


@torch.no_grad()
def mean_sensitivity(kernel: Tensor, gradient: Tensor, axis: int) -> Tensor:
    """See `row_ops`."""
    return (kernel.float() * gradient.float()).abs_().mean(1 - axis)


@torch.no_grad()
def scale(variable: keras.Variable, factors: Tensor) -> None:
    """See `row_ops`."""
    variable.value.mul_(factors)


def known_count(count: Tensor) -> int | None:
    """See `row_ops`."""
    if torch.compiler.is_compiling():
        return None
    value = count.value if isinstance(count, keras.Variable) else count
    return int(value) if value.device.type == "cpu" else None
