"""From `compact=` to the steps after which a model is narrowed, and its widths then.

A plan asks this too, without a model; which steps a run in `fit` still has, and the
narrowing itself, is in `keras_idea.callbacks.prune.narrowing`. Neurons that are masked
never come back, so which step takes them out changes nothing of what is computed.
"""

from collections.abc import Sequence
from typing import Literal

from keras_idea.functional.milestones import milestones, physical_width
from keras_idea.functional.width import CubicWidth

#: What `compact` of the pruning callback may be.
Compact = Literal["end", "progressive", "off"]
COMPACT: tuple[Compact, ...] = ("end", "progressive", "off")


def narrowing_steps(
    compact: Compact,
    schedules: Sequence[CubicWidth],
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
    schedules: Sequence[CubicWidth],
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


def stored_width(active: int, schedule: CubicWidth, parts: int = 1) -> int:
    """The neurons that an FFN has places for once it is narrowed.

    `physical_width`, rounded up to a multiple of the devices that share them.
    """
    width = physical_width(active, schedule.full_dim, schedule.target_dim)
    return -(-width // parts) * parts
