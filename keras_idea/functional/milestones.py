"""`compact="progressive"`: at which steps of a falling width it pays to narrow.

Every change of a shape costs one compilation, so a model cannot follow its masks at
every step; a few milestones come close. Where nothing is compiled it costs about what
a step costs, and they may be more.
"""

import math
from collections.abc import Sequence
from typing import Literal

from keras_idea.functional.width import WidthSchedule, first_step

#: Changes of shape in one run, at most: where each is compiled, and where none is.
MOST, MOST_EAGER = 8, 64
# What the matrix units of accelerators multiply at once.
_TILE = 128


def most_milestones(prune_steps: int, eager: bool) -> int:
    """Changes of shape that pay, at most.

    With m of them a step is too wide by 1/2m of the neurons that go. If a change costs
    c steps, and all those neurons the share g of a step, then `c m + g T_p / 2m` is
    least at `m = sqrt(g T_p / 2c)`. On a CPU `g / 2c` was 0.75 and 3 for models of 2
    and 4 layers, so m is the root of the steps, from 8 to 64.

    Example:
    >>> most_milestones(1000, eager=False), most_milestones(1000, eager=True)
    (8, 31)
    """
    return min(max(MOST, math.isqrt(prune_steps)), MOST_EAGER) if eager else MOST


def bucket(full_dim: int, target_dim: int, most: int = MOST) -> int:
    r"""Neurons from one milestone to the next.

    $$b = \lceil (h - h') / m \rceil$$

    with `h = full_dim`, `h' = target_dim` and `m = most`. Where an eighth of `h - h'`
    is more than 127, it is rounded up to a multiple of 128. No device is asked, so a
    run is the same on every one.

    Example:
    >>> bucket(512, 192), bucket(2048, 512)
    (40, 256)
    """
    part = max(1, -(-(full_dim - target_dim) // most))
    return _round_up(part) if _in_tiles(full_dim, target_dim) else part


def milestones(
    schedules: Sequence[WidthSchedule], end_step: int, eager: bool = False
) -> list[int]:
    """The optimizer steps, ascending, after which the model is made narrower.

    The FFN that loses most neurons sets them, each time its scheduled width comes
    down to a whole number of buckets above its target: one cubic rules all FFNs, so
    that the others stand as far, up to rounding. The last one is `end_step`; widths
    that fall at once, or later than that, have it alone.

    Example:
    >>> milestones([ki.CubicWidth(512, 192, begin_step=0, prune_steps=100)], 100)
    [5, 10, 15, 21, 28, 37, 50, 100]
    """
    lead = max(schedules, key=lambda schedule: schedule.full_dim - schedule.target_dim)
    most = most_milestones(lead.prune_steps, eager)
    step_down = bucket(lead.full_dim, lead.target_dim, most)
    widths = range(lead.target_dim + step_down, lead.full_dim, step_down)
    steps = {first_step(lead, width) for width in widths}
    return [*sorted(step for step in steps if step < end_step), end_step]


def physical_width(alive: int, full_dim: int, target_dim: int) -> int:
    """How wide an FFN is made at a milestone.

    As wide as it is alive; where buckets are multiples of 128, the next multiple,
    with dead neurons to fill it up, because other widths are slow on accelerators.

    Example:
    >>> physical_width(470, 512, 192), physical_width(1790, 2048, 512)
    (470, 1792)
    """
    if alive <= target_dim or not _in_tiles(full_dim, target_dim):
        return alive
    return min(full_dim, _round_up(alive))


def _in_tiles(full_dim: int, target_dim: int) -> bool:
    return full_dim - target_dim > MOST * (_TILE - 1)


def _round_up(neurons: int) -> int:
    return -(-neurons // _TILE) * _TILE


# A plan asks for this too, without a model. Neurons that are masked never come back, so
# which step takes them out changes nothing of what is computed.
#: What `compact` of the pruning callback may be.
Compact = Literal["end", "progressive", "off"]
COMPACT: tuple[Compact, ...] = ("end", "progressive", "off")


def narrowing_steps(
    compact: Compact,
    schedules: Sequence[WidthSchedule],
    end_step: int,
    eager: bool = False,
) -> list[int]:
    """The optimizer steps, ascending, after which a model becomes narrower.

    After the last one there is nothing left to prune.
    """
    if compact == "off":
        return []
    if compact == "end":
        return [end_step]
    return milestones(schedules, end_step, eager)


def compaction_widths(
    compact: Compact,
    schedules: Sequence[WidthSchedule],
    end_step: int,
    parts: int = 1,
    eager: bool = False,
) -> dict[int, list[int]]:
    """How wide the layers of a model are from each of its compactions on.

    `parts` devices share a layer's units where they divide them.

    Returns:
        dict of the optimizer step after which it becomes narrower to the units of each
        kind of layer, as `schedules` has them, from there on; ascending.
    """
    steps = narrowing_steps(compact, schedules, end_step, eager)
    widths = {
        step: [
            stored_width(each(step), each, 1 if each.full_dim % parts else parts)
            for each in schedules
        ]
        for step in steps
    }
    # Methods that decide once may have a schedule that falls one step later.
    targets = [schedule.target_dim for schedule in schedules]
    return {**widths, **dict.fromkeys(steps[-1:], targets)}


def stored_width(active: int, schedule: WidthSchedule, parts: int = 1) -> int:
    """The neurons that an FFN has places for once it is narrowed.

    `physical_width`, rounded up to a multiple of the devices that share them.
    """
    width = physical_width(active, schedule.full_dim, schedule.target_dim)
    return -(-width // parts) * parts
