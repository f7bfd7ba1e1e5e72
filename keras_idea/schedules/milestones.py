"""When a model whose width falls step by step is made physically narrower.

Every change of a shape costs one compilation, so a model cannot follow its masks at
every step; a few milestones come close.
"""

import bisect
from collections.abc import Sequence

from keras_idea.schedules.width import CubicWidth

#: Changes of shape in one run, at most.
MOST = 8
# What the matrix units of accelerators multiply at once.
_TILE = 128


def bucket(full_dim: int, target_dim: int) -> int:
    r"""Neurons from one milestone to the next.

    $$b = \lceil (h - h') / 8 \rceil$$

    with `h = full_dim` and `h' = target_dim`, rounded up to a multiple of 128 from
    there on. No device is asked, so a run is the same on every one.

    Args:
        full_dim: int >= 1, neurons before pruning.
        target_dim: int in [1, full_dim], neurons after pruning.

    Returns:
        int >= 1.

    Example:
    >>> bucket(512, 192), bucket(2048, 512)
    (40, 256)
    """
    eighth = max(1, -(-(full_dim - target_dim) // MOST))
    return eighth if eighth < _TILE else _round_up(eighth)


def milestones(schedules: Sequence[CubicWidth], end_step: int) -> list[int]:
    """The optimizer steps after which the model is made narrower.

    The FFN that loses most neurons sets them, each time its scheduled width comes
    down to a whole number of buckets above its target: one cubic rules all FFNs, so
    that the others stand as far, up to rounding. The last one is `end_step`.

    Args:
        schedules: non-empty list of `CubicWidth`, one an FFN, of the same steps.
        end_step: int, the step at which pruning is done.

    Returns:
        Ascending list of 1 to 8 ints. Widths that fall at once, or later than
        `end_step`, have the last one alone.

    Example:
    >>> milestones([CubicWidth(512, 192, begin_step=0, prune_steps=100)], 100)
    [5, 10, 15, 21, 28, 37, 50, 100]
    """
    lead = max(schedules, key=lambda schedule: schedule.full_dim - schedule.target_dim)
    step_down = bucket(lead.full_dim, lead.target_dim)
    widths = range(lead.target_dim + step_down, lead.full_dim, step_down)
    steps = {_first_step(lead, width) for width in widths}
    return [*sorted(step for step in steps if step < end_step), end_step]


def physical_width(alive: int, full_dim: int, target_dim: int) -> int:
    """How wide an FFN is made at a milestone.

    As wide as it is alive; where buckets are multiples of 128, the next multiple,
    with dead neurons to fill it up, because other widths are slow on accelerators.

    Args:
        alive: int >= 1, neurons alive.
        full_dim: int, neurons before pruning.
        target_dim: int, neurons after pruning.

    Returns:
        int in [alive, full_dim]; `target_dim` if so many are alive.

    Example:
    >>> physical_width(470, 512, 192), physical_width(1790, 2048, 512)
    (470, 1792)
    """
    if alive <= target_dim or bucket(full_dim, target_dim) < _TILE:
        return alive
    return min(full_dim, _round_up(alive))


def _round_up(neurons: int) -> int:
    return -(-neurons // _TILE) * _TILE


def _first_step(schedule: CubicWidth, width: int) -> int:
    """The first step after which the schedule keeps no more than `width`."""
    steps = range(schedule.begin_step, schedule.end_step + 1)
    return steps[bisect.bisect_left(steps, -width, key=lambda step: -schedule(step))]
