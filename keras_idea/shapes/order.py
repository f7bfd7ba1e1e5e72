"""Which blocks stay: in the order of their importance, and where each may stand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_idea.errors import ArgumentError


def most_important(
    importance: np.ndarray, kinds: Sequence[Any], places: Sequence[Any]
) -> list[int]:
    """The blocks of the greatest importance together that fit a narrower model.

    Of all ascending choices whose kinds are those of the places, one after another, the
    one of the greatest sum. Refuses an importance that is not finite.

    Example:
    >>> most_important(np.array([1.0, 3.0, 0.5, 2.0]), "abab", "ab")
    [0, 1]
    """
    blocks, wanted = len(kinds), len(places)
    if not np.isfinite(importance).all():
        raise ArgumentError(
            "The importance of some blocks is NaN or infinite. Check the calibration "
            f"data and the weights. Received: {importance}."
        )
    # best[i, j]: of the first i blocks j stay, for the first j places.
    best = np.full((blocks + 1, wanted + 1), -np.inf)
    best[:, 0] = 0
    for i in range(1, blocks + 1):
        for j in range(1, min(i, wanted) + 1):
            fits = kinds[i - 1] == places[j - 1]
            taken = best[i - 1, j - 1] + importance[i - 1] if fits else -np.inf
            best[i, j] = max(best[i - 1, j], taken)
    if not np.isfinite(best[blocks, wanted]):
        raise ArgumentError(
            f"No {wanted} of the {blocks} blocks can stay: their kinds follow one "
            "another in a pattern that those of a model with so many have not. Give "
            "another number."
        )
    kept, j = [], wanted
    for i in range(blocks, 0, -1):
        if j and best[i, j] > best[i - 1, j]:
            kept.append(i - 1)
            j -= 1
    return kept[::-1]


def fits(kinds: Sequence[Any], places: Sequence[Any]) -> bool:
    """Whether the places can be filled from the kinds, in their order."""
    left = iter(kinds)
    return all(any(kind == place for kind in left) for place in places)
