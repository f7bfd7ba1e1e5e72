"""How many neurons to keep at each optimizer step."""

import bisect
import dataclasses
import functools
from typing import overload

import keras
import numpy as np
from keras import ops

from keras_idea._typing import Tensor
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError

#: Steps of a schedule whose widths are looked at when it is made, besides the first.
_SEEN = 16


@dataclasses.dataclass(unsafe_hash=True)
class WidthSchedule:
    """The FFN width at each step. A subclass defines `at`.

    The width is `full_dim` up to `begin_step`, and `target_dim` from `begin_step +
    prune_steps` on. It must never rise.

    Args:
        full_dim: int >= 1. Neurons before pruning.
        target_dim: int in [1, full_dim]. Neurons after pruning.
        begin_step: int >= 0. The last step at full width.
        prune_steps: int >= 1. Steps from full width to the target.
        update_every: int >= 1. Steps between two changes of the width after
            `begin_step`. It also changes at `begin_step + prune_steps`. Defaults to 1.

    Raises:
        ValueError: If an argument is outside its range, or if `at` is wrong at its ends
            or rises at some of 17 steps.

    Example:
    >>> class LinearWidth(WidthSchedule):
    ...     def at(self, elapsed):
    ...         going = self.full_dim - self.target_dim
    ...         return self.full_dim - going * elapsed // self.prune_steps
    >>> width = LinearWidth(full_dim=16, target_dim=4, begin_step=2, prune_steps=4)
    >>> [width(step) for step in range(8)]
    [16, 16, 16, 13, 10, 7, 4, 4]
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
        steps = [self.prune_steps * i // _SEEN for i in range(_SEEN + 1)]
        widths = [self.at(step) for step in dict.fromkeys(steps)]
        if widths[0] != full_dim or widths[-1] != self.target_dim:
            raise ArgumentError(
                f"`at` of {type(self).__name__} must return {full_dim} for 0, and "
                f"{self.target_dim} for {self.prune_steps}. Received: {widths[0]} and "
                f"{widths[-1]}."
            )
        if widths != sorted(widths, reverse=True):
            raise ArgumentError(
                f"`at` of {type(self).__name__} must never rise. Received: {widths}."
            )

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same class with the same attributes."""
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = vars(self), vars(other)
        return mine.keys() == theirs.keys() and all(
            np.array_equal(mine[name], theirs[name]) for name in mine
        )

    @property
    def end_step(self) -> int:
        """int, `begin_step + prune_steps`, from which the width is the target."""
        return self.begin_step + self.prune_steps

    def at(self, elapsed: int) -> int:
        """Returns the neurons to keep so many steps after `begin_step`.

        Args:
            elapsed: int in [0, prune_steps]. 0 must give `full_dim`, and `prune_steps`
                must give `target_dim`.

        Returns:
            int.
        """
        raise NotImplementedError

    @overload
    def __call__(self, step: int) -> int: ...
    @overload
    def __call__(self, step: Tensor) -> Tensor: ...
    def __call__(self, step: int | Tensor) -> int | Tensor:
        """Neurons to keep after `step` optimizer steps; see `call`."""
        return self.call(step)

    def call(self, step: int | Tensor) -> int | Tensor:
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
        return self.at(elapsed)

    def get_config(self) -> dict[str, int]:
        """Returns a dict of the constructor's arguments."""
        return dataclasses.asdict(self)


class CubicWidth(WidthSchedule):
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

    def at(self, elapsed: int) -> int:
        """Returns the cubic, rounded; see `WidthSchedule.at`."""
        left, whole = (self.prune_steps - elapsed) ** 3, self.prune_steps**3
        going = self.full_dim - self.target_dim
        return self.target_dim + (2 * going * left + whole) // (2 * whole)


def first_step(schedule: WidthSchedule, width: int) -> int:
    """The first step after which a schedule keeps no more than `width`."""
    steps = range(schedule.begin_step, schedule.end_step + 1)
    place = bisect.bisect_left(steps, -width, key=lambda step: -schedule._kept(step))
    return steps[place]


@functools.lru_cache(maxsize=64)
def _fall_steps(schedule: WidthSchedule) -> np.ndarray:
    """int32 array: for each neuron that falls, the first step without it."""
    widths = range(schedule.full_dim - 1, schedule.target_dim - 1, -1)
    return np.asarray([first_step(schedule, kept) for kept in widths], dtype="int32")
