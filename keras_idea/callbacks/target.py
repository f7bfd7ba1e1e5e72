"""How many neurons each FFN is to keep."""

import numbers
from collections.abc import Sequence
from typing import Any

import keras

from keras_idea.callbacks.budget import Budget, costs_by_width
from keras_idea.errors import ArgumentError
from keras_idea.surgery.find import FFN
from keras_idea.validation import check_int


def check_target(target_dim: Any, round_to: int, budget: Budget) -> int | float | None:
    """Refuses a `target_dim` that is neither a number of neurons nor a fraction.

    Args:
        target_dim: int >= 1, neurons to keep; or float in (0, 1), the fraction to keep;
            or None, where there is a budget.
        round_to: int >= 1, of which an int must be a multiple.
        budget: `Budget`, empty if there is none.

    Returns:
        A Python int or float, or None.

    Raises:
        ValueError: for anything else.
    """
    if budget:
        if target_dim is not None:
            raise ArgumentError(
                f"Give one of `target_dim` and {budget}: both say how narrow to prune. "
                f"Received: target_dim={target_dim!r} too."
            )
        return None
    if isinstance(target_dim, numbers.Integral) and not isinstance(target_dim, bool):
        target_dim = check_int("target_dim", target_dim, minimum=1)
        if target_dim % round_to:
            raise ArgumentError(
                f"`target_dim` must be a multiple of round_to={round_to}. "
                f"Received: target_dim={target_dim}."
            )
        return target_dim
    if isinstance(target_dim, numbers.Real) and 0 < float(target_dim) < 1:
        return float(target_dim)
    raise ArgumentError(
        "`target_dim` must be an integer >= 1 (neurons to keep in each FFN) or a "
        "float in (0, 1) (the fraction to keep); or give target_parameters, "
        "target_bytes or target_flops in its place. "
        f"Received: target_dim={target_dim!r}."
    )


def check_groups(groups: Any) -> Any:
    """Refuses `groups` that is no function.

    Raises:
        ValueError: for anything else than None or a function of an `FFN` handle.
    """
    if groups is not None and not callable(groups):
        raise ArgumentError(
            "`groups` must be a function of an FFN handle, or None. Received: "
            f"groups={groups!r}. Give for example "
            "groups=lambda ffn: ffn.name.startswith('decoder')."
        )
    return groups


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


def target_widths(
    target_dim: int | float | None,
    budget: Budget,
    model: keras.Model,
    ffns: Sequence[FFN],
    round_to: int,
) -> list[tuple[FFN, int]]:
    """The neurons that each FFN of a model keeps.

    Args:
        target_dim: as `check_target` returns it.
        budget: `Budget`, which counts where there is no `target_dim`.
        model: the built Keras model.
        ffns: list of `FFN` handles that are pruned.
        round_to: int >= 1, of which widths become multiples.

    Returns:
        list of (`FFN` handle, int).

    Raises:
        ValueError: if a budget cannot be met.
    """
    if target_dim is None:
        widest = max(ffn.full_dim for ffn in ffns)
        width = budget.widest(costs_by_width(model, ffns), widest, round_to)
        return [(ffn, min(width, ffn.full_dim)) for ffn in ffns]
    return [(ffn, target_width(target_dim, ffn.full_dim, round_to)) for ffn in ffns]


def budget_line(budget: Budget, model: keras.Model, ffns: list[FFN], width: int) -> str:
    """What a budget comes to: a line for whoever watches the run."""
    costs = costs_by_width(model, ffns)(width)
    return (
        f"{budget}: at most {width} neurons stay in each FFN. The narrow model has "
        f"{costs.parameters:,} parameters and takes {costs.flops:,} FLOPs a token."
    )
