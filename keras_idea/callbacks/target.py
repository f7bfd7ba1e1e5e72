"""How many neurons each FFN is to keep."""

import numbers
from typing import Any

from keras_idea.validation import check_int


def check_target(target_dim: Any, round_to: int) -> int | float:
    """Refuses a `target_dim` that is neither a number of neurons nor a fraction.

    Args:
        target_dim: int >= 1, neurons to keep; or float in (0, 1), the fraction to keep.
        round_to: int >= 1, of which an int must be a multiple.

    Returns:
        A Python int or float.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(target_dim, numbers.Integral) and not isinstance(target_dim, bool):
        target_dim = check_int("target_dim", target_dim, minimum=1)
        if target_dim % round_to:
            raise ValueError(
                f"`target_dim` must be a multiple of round_to={round_to}. "
                f"Received: target_dim={target_dim}."
            )
        return target_dim
    if isinstance(target_dim, numbers.Real) and 0 < float(target_dim) < 1:
        return float(target_dim)
    raise ValueError(
        "`target_dim` must be an integer >= 1 (neurons to keep in each FFN) or a "
        "float in (0, 1) (the fraction to keep). "
        f"Received: target_dim={target_dim!r}."
    )


def target_width(target_dim: int | float, full_dim: int, round_to: int) -> int:
    """The neurons that an FFN keeps.

    Args:
        target_dim: int or float, as `check_target` returns it.
        full_dim: int >= 1, neurons that the FFN was built with.
        round_to: int >= 1, of which a fraction becomes the nearest multiple.

    Returns:
        int >= 1.

    Example:
    >>> target_width(0.375, full_dim=1000, round_to=64)
    384
    """
    if isinstance(target_dim, int):
        return target_dim
    return max(1, round(target_dim * full_dim / round_to)) * round_to
