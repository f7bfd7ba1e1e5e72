"""What a model of another shape is to keep: how much of each axis."""

import numbers
from collections.abc import Mapping
from typing import Any, TypeAlias

from keras_idea.errors import ArgumentError
from keras_idea.finding.targets import target_width
from keras_idea.groups.kinds import KINDS
from keras_idea.validation import check_choice

#: What can be made smaller, a key of `axes`.
Axis: TypeAlias = str
#: An axis that no search has: losses per token of two vocabularies are not comparable.
VOCABULARY: Axis = "vocabulary"
#: By axis: an int, how many stay; or a float in (0, 1), the fraction that stays.
Shape: TypeAlias = dict[Axis, int | float]


def axes() -> dict[Axis, float]:
    """What can be made smaller, and the least share of it that a search keeps.

    The units of each kind; whole blocks; the features of the residual stream. Depth and
    the residual stream bear least.
    """
    units = {name: kind.least for name, kind in KINDS.items()}
    return {**units, "blocks": 0.7, "hidden_dim": 0.7}


def check_shape(targets: Any) -> Shape:
    """Refuses targets that are neither numbers nor fractions of known axes."""
    if not isinstance(targets, Mapping) or not targets:
        raise ArgumentError(
            '`targets` must be a dict such as {"neurons": 0.6, "blocks": 0.8}. '
            f"Received: targets={targets!r}."
        )
    shape: Shape = {}
    for axis, target in targets.items():
        check_choice("targets", axis, (*axes(), VOCABULARY))
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


def size_of(axis: Axis, target: int | float, full: int, owner: str) -> int:
    """How many of an axis stay: at least one; a fraction becomes the nearest.

    Refuses more than the `full` that its owner, named by a path, has.
    """
    size = target_width(target, full, round_to=1)
    if size > full:
        raise ArgumentError(
            f"`targets[{axis!r}]` is {size}, but '{owner}' has {full}. Give at most "
            "that, or a float in (0, 1), the fraction that stays."
        )
    return size
