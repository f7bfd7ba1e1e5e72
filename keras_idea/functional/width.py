"""How many units stay after each optimizer step, and when a model is narrowed."""

import bisect
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_idea._validation import check_int


@dataclasses.dataclass(unsafe_hash=True)
class CubicWidth:
    r"""Computes the FFN width at each step by a cubic, in whole neurons.

    $$\text{kept}(t) = h' + (h - h') \left(1 - \frac{t - t_0}{T_p}\right)^3$$

    is rounded to the nearest neuron, with `h = full_dim`, `h' = target_dim`, `t_0 =
    begin_step` and `T_p = prune_steps`. The width is `h` up to `begin_step`, and `h'`
    from `begin_step + prune_steps` on. It never rises.

    Args:
        full_dim: int >= 1. Neurons before pruning.
        target_dim: int in [1, full_dim]. Neurons after pruning.
        begin_step: int >= 0. The last step at full width.
        prune_steps: int >= 1. Steps from full width to the target.
        update_every: int >= 1. Steps between two changes of the width after
            `begin_step`. It also changes at `begin_step + prune_steps`. Defaults to 1.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> width = CubicWidth(full_dim=16, target_dim=4, begin_step=2, prune_steps=4)
    >>> [width(step) for step in range(8)]
    [16, 16, 16, 9, 6, 4, 4, 4]

    Notes:
        The width is exact. A Python step is computed in integers. A traced step counts
        the integer steps at which the width falls by one neuron. (A float32 cubic is
        off by a neuron at `h = 16384`.)

    Reference: Zhu & Gupta, 2017 (arXiv 1710.01878), as IDEA Prune uses it.
    """

    full_dim: int
    target_dim: int
    begin_step: int
    prune_steps: int
    update_every: int = 1

    def __post_init__(self) -> None:
        full_dim = self.full_dim = check_int("full_dim", self.full_dim, minimum=1)
        self.target_dim = check_int("target_dim", self.target_dim, 1, full_dim)
        self.begin_step = check_int("begin_step", self.begin_step, minimum=0)
        self.prune_steps = check_int("prune_steps", self.prune_steps, minimum=1)
        self.update_every = check_int("update_every", self.update_every, minimum=1)

    @property
    def going(self) -> int:
        """int, the neurons that are pruned."""
        return self.full_dim - self.target_dim

    def __call__(self, step: Any) -> Any:
        """Returns the neurons to keep after `step` optimizer steps.

        Args:
            step: int or integer scalar tensor (traced or not). The optimizer step.

        Returns:
            int for an int; otherwise an int32 scalar tensor.
        """
        if not ops.is_tensor(step) and not isinstance(step, keras.Variable):
            return self._kept(check_int("step", step, minimum=0))
        falls = ops.convert_to_tensor(_fall_steps(self))
        fallen = ops.cast(falls <= ops.cast(step, "int32"), "int32")
        return self.full_dim - ops.sum(fallen)

    def _kept(self, step: int) -> int:
        elapsed = min(max(step - self.begin_step, 0), self.prune_steps)
        if elapsed < self.prune_steps:
            elapsed -= elapsed % self.update_every
        left, whole = (self.prune_steps - elapsed) ** 3, self.prune_steps**3
        return self.target_dim + (2 * self.going * left + whole) // (2 * whole)

    def first_step(self, width: int) -> int:
        """Returns the first step after which no more than `width` neurons stay."""
        steps = range(self.begin_step, self.begin_step + self.prune_steps + 1)
        return steps[bisect.bisect_left(steps, -width, key=lambda s: -self._kept(s))]

    def get_config(self) -> dict[str, int]:
        """Returns a dict of the constructor's arguments."""
        return dataclasses.asdict(self)


@functools.lru_cache(maxsize=64)
def _fall_steps(schedule: CubicWidth) -> np.ndarray:
    """Returns for each neuron that is pruned, as int32, the first step without it."""
    widths = range(schedule.full_dim - 1, schedule.target_dim - 1, -1)
    return np.asarray([schedule.first_step(kept) for kept in widths], dtype="int32")


#: What `compact` of the pruning callback may be.
Compact = Literal["end", "progressive", "off"]
COMPACT: tuple[Compact, ...] = ("end", "progressive", "off")
#: The most changes of shape in one run: if each is compiled, and if none is.
_MOST, _MOST_EAGER = 8, 64
# What the matrix units of accelerators multiply at once.
_TILE = 128


def narrowing_steps(
    compact: Compact,
    schedules: Sequence[CubicWidth],
    end_step: int,
    eager: bool = False,
) -> list[int]:
    r"""Returns the optimizer steps, ascending, after which a model becomes narrower.

    "progressive" narrows each time the group that loses most units comes down by
    `(h - h') / m`. If a change of shape costs c steps, and the units that go the share
    g of a step, `c m + g T_p / 2m` is least at `m = sqrt(g T_p / 2c)`. If nothing is
    compiled, `g / 2c` was 0.75 and 3 on a CPU, so m is the root of the steps, from 8 to
    64; else it is 8.

    Example:
    >>> width = ki.CubicWidth(512, 192, begin_step=0, prune_steps=100)
    >>> narrowing_steps("progressive", [width], 100)
    [5, 10, 15, 21, 28, 37, 50, 100]
    """
    if compact == "off":
        return []
    if compact == "end":
        return [end_step]
    lead = max(schedules, key=lambda schedule: schedule.going)
    most = _MOST
    if eager:
        most = min(max(_MOST, math.isqrt(lead.prune_steps)), _MOST_EAGER)
    down = _in_tiles(max(1, -(-lead.going // most)), lead)
    widths = range(lead.target_dim + down, lead.full_dim, down)
    steps = {lead.first_step(width) for width in widths}
    return [*sorted(step for step in steps if step < end_step), end_step]


def stored_width(active: int, schedule: CubicWidth, parts: int = 1) -> int:
    """Returns the units that a group has places for once it is narrowed.

    As many as are active. If many go, it is the next multiple of 128, filled up with
    pruned units: other widths are slow on accelerators. The `parts` devices that share
    a group get equally many.

    Example:
    >>> stored_width(1790, ki.CubicWidth(2048, 512, begin_step=0, prune_steps=9))
    1792
    """
    width = active
    if active > schedule.target_dim:
        width = min(schedule.full_dim, _in_tiles(active, schedule))
    return -(-width // parts) * parts


def _in_tiles(units: int, schedule: CubicWidth) -> int:
    """Rounds up to a multiple of 128 if an eighth of the units that go is as large."""
    if schedule.going <= _MOST * (_TILE - 1):
        return units
    return -(-units // _TILE) * _TILE
