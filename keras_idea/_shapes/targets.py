"""Checks the `targets` of `shrink`."""

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

from keras_idea._finding.targets import target_width
from keras_idea._groups.kinds import KINDS
from keras_idea._validation import check_choice
from keras_idea.errors import ArgumentError

BLOCKS, FEATURES, VOCABULARY = "blocks", "features", "vocabulary"
#: By axis: an int, how many stay; or a float in (0, 1), the fraction that stays.
Shape: TypeAlias = dict[str, int | float]


def check_shape(targets: Any) -> Shape:
    """Returns targets whose values are numbers or fractions of known axes."""
    if not isinstance(targets, Mapping) or not targets:
        raise ArgumentError(
            '`targets` must be a dict such as {"neurons": 0.6, "blocks": 0.8}. '
            f"Received: targets={targets!r}."
        )
    shape: Shape = {}
    for axis, target in targets.items():
        check_choice("targets", axis, (*KINDS, BLOCKS, FEATURES, VOCABULARY))
        whole = isinstance(target, numbers.Integral) and not isinstance(target, bool)
        if whole and target >= 1:
            shape[axis] = int(target)
        elif isinstance(target, numbers.Real) and 0 < float(target) < 1:
            shape[axis] = float(target)
        else:
            raise ArgumentError(
                f"`targets[{axis!r}]` must be an integer >= 1 (how many stay) or a "
                f"float in (0, 1) (the fraction that stays). Received: {target!r}."
            )
    return shape


def size_of(axis: str, target: int | float, full: int, owner: str) -> int:
    """Returns how many of the `full` units of an owner stay, at least one.

    A fraction is rounded to the nearest number. Raises if the target is more than all.
    """
    size = target_width(target, full, round_to=1)
    if size > full:
        raise ArgumentError(
            f"`targets[{axis!r}]` is {size}, but '{owner}' has {full}. Give at most "
            "that, or a float in (0, 1), the fraction that stays."
        )
    return size
