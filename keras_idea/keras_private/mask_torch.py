"""What is known of a mask on eager torch, so that nothing is multiplied by ones.

Torch counts how often a tensor was changed in place, for its own autograd. Seen with
torch 2.13.0.
"""

from typing import TypeAlias

import keras
import torch

#: A tensor, how often it had been changed, and whether it was all ones then.
Known: TypeAlias = tuple[torch.Tensor, int, bool]


def look(mask: keras.Variable, known: Known | None) -> Known | None:
    """Looks at a mask if it has changed since it was last looked at.

    Args:
        mask: Keras variable.
        known: what this returned the last time, or None.

    Returns:
        `Known`; None where the values are no eager tensor's: in a compiled, traced or
        symbolic pass.
    """
    value = mask.value
    if (
        type(value) is not torch.nn.Parameter
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or value.is_meta
        or value.is_inference()
    ):
        return None
    if known is not None and known[0] is value and known[1] == value._version:
        return known
    return value, value._version, bool((value == 1).all())
