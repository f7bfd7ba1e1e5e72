"""Whether a mask is all ones, on eager torch, so that nothing is multiplied by ones.

Seen with torch 2.13.0.
"""

import functools

import keras
import torch


def is_whole(mask: keras.Variable) -> bool:
    """Whether a mask `(F,)` is all ones, where to look is cheaper than to multiply.

    False where to look is to wait for a device, or values are no eager tensor's: in a
    compiled, traced or symbolic pass.
    """
    value = mask.value
    if (
        type(value) is not torch.nn.Parameter
        or not value.is_cpu
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._len_torch_dispatch_stack()  # of make_fx, or tensors without values
    ):
        return False
    return torch.equal(value, _ones(len(value), value.dtype))


@functools.lru_cache(maxsize=64)
def _ones(length: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(length, dtype=dtype)
