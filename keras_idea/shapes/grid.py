"""Shapes within a budget: of each axis some sizes, the neurons as many as it allows."""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.finding.budget import Budget, Costs
from keras_idea.groups.kinds import KINDS, NEURONS
from keras_idea.shapes.targets import Axis, Shape

# Steps from the least share of the residual stream to all of it.
_FEATURE_STEPS = 8


def shapes_within(
    budget: Budget,
    costs: Callable[[Shape], Costs],
    full: Mapping[Axis, int],
    least: Mapping[Axis, float],
    round_to: int,
) -> list[Shape]:
    """The largest shapes that a budget allows: none could keep one step more.

    An axis of which all stay is not in them. `full` is how many there are of each axis,
    `least` the least share that stays; neurons are multiples of `round_to`. Refuses a
    budget that no shape meets, or that the model itself does.
    """
    if budget.allows(costs({})):
        raise ArgumentError(
            f"The model itself is within {budget}: it has {budget.format(costs({}))}. "
            "Lower the budget."
        )
    sizes = {
        axis: _sizes(axis, count, least[axis], round_to) for axis, count in full.items()
    }
    others: list[Axis] = [axis for axis in sizes if axis != NEURONS]
    found: list[tuple[int, ...]] = []
    for chosen in itertools.product(*(range(len(sizes[axis])) for axis in others)):
        fixed: Shape = {
            axis: sizes[axis][i] for axis, i in zip(others, chosen, strict=True)
        }

        def over(neurons: int, fixed: Shape = fixed) -> bool:
            shape = _partial({**fixed, NEURONS: neurons}, full)
            return not budget.allows(costs(shape))

        if NEURONS not in sizes:
            if budget.allows(costs(_partial(fixed, full))):
                found.append(chosen)
            continue
        count = bisect.bisect_right(sizes[NEURONS], False, key=over)
        if count:
            found.append((*chosen, count - 1))
    axes: list[Axis] = [*others, *(axis for axis in sizes if axis == NEURONS)]
    largest = [f for f in found if not any(_larger(other, f) for other in found)]
    if not largest:
        smallest: Shape = {axis: of_axis[0] for axis, of_axis in sizes.items()}
        raise ArgumentError(
            f"{budget} cannot be met: at the smallest shape that `limits` allow, "
            f"{smallest}, the model still has "
            f"{budget.format(costs(_partial(smallest, full)))}. Raise the budget, "
            "lower `limits`, or add to `kinds`."
        )
    return [
        _partial({axis: sizes[axis][i] for axis, i in zip(axes, f, strict=True)}, full)
        for f in largest
    ]


def spread(
    shapes: Sequence[Shape], full: Mapping[Axis, int], count: int
) -> list[Shape]:
    """Some (`count`) of many shapes, as unlike one another as can be.

    The first is that whose axes keep most alike shares; each other the one farthest
    from those before it, in shares.
    """
    shares = np.array(
        [[s.get(axis, n) / n for axis, n in full.items()] for s in shapes]
    )
    chosen = [int(np.argmin(shares.std(axis=1)))]
    while len(chosen) < min(count, len(shapes)):
        apart = np.linalg.norm(shares[:, None] - shares[None, chosen], axis=-1)
        chosen.append(int(np.argmax(apart.min(axis=1))))
    return [shapes[i] for i in chosen]


def _sizes(axis: Axis, full: int, least: float, round_to: int) -> list[int]:
    of_features = max(1, round((1 - least) * full / _FEATURE_STEPS))
    rounded = [name for name, kind in KINDS.items() if kind.rounded]
    steps = {**dict.fromkeys(rounded, round_to), "hidden_dim": of_features}
    step = steps.get(axis, 1)
    first = max(1, math.ceil(least * full / step)) * step
    sizes = list(range(first, full + 1, step))
    return sizes if sizes and sizes[-1] == full else [*sizes, full]


def _partial(shape: Shape, full: Mapping[Axis, int]) -> Shape:
    return {axis: size for axis, size in shape.items() if size != full[axis]}


def _larger(other: tuple[int, ...], found: tuple[int, ...]) -> bool:
    return other != found and all(a >= b for a, b in zip(other, found, strict=True))
