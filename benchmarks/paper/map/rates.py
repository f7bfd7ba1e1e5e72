"""The best learning rate of each way, searched at two places and interpolated."""

import math

import numpy as np

from benchmarks.paper.map.arms import (
    IDEA,
    SAME_FLOPS_ARM,
    SAME_TOKENS,
    Arm,
    Grid,
)
from benchmarks.paper.plan import plan


def best_peak(peaks, bits) -> float:
    """Where the parabola through the best value and its neighbours is lowest.

    Args:
        peaks: sequence of float, ascending by one factor.
        bits: sequence of float or None (training diverged), of each.

    Returns:
        float; at either end of the peaks that end: the best may lie beyond.

    Example:
    >>> best_peak([1, 2, 4], [1.0, 0.0, 1.0])
    2.0
    """
    known = [math.inf if value is None else value for value in bits]
    i = int(np.argmin(known))
    if i in (0, len(known) - 1) or math.inf in known[i - 1 : i + 2]:
        return float(peaks[i])
    below, here, above = known[i - 1 : i + 2]
    offset = (below - above) / (2 * (below - 2 * here + above))
    return float(peaks[i] * (peaks[i + 1] / peaks[i]) ** offset)


class Rates:
    """The peak of any arm, of what was searched.

    The logarithm of the peak is linear in that of the budget. A longer run of a narrow
    model has the peak of its own tokens; a wide one that is never pruned has that of
    the pruned one, which is as wide for half of its steps; so has a rewarmed one.

    Args:
        grid: `Grid`.
        ledger: `Ledger` in which the search is finished.
    """

    def __init__(self, grid: Grid, ledger):
        self._grid = grid
        self.bits = {
            arm: [self._mean_bits(ledger, arm.cell(peak)) for peak in grid.peaks]
            for arm in grid.swept_arms()
        }
        self.best = {
            arm: best_peak(grid.peaks, bits) for arm, bits in self.bits.items()
        }

    def __call__(self, arm: Arm) -> float:
        """The peak in units of the scale's."""
        if arm.kind == SAME_TOKENS:
            log = self._between(SAME_TOKENS, 1.0, arm.budget)
        elif arm.kind == SAME_FLOPS_ARM:
            log = self._between(SAME_TOKENS, 1.0, longer(arm, self._grid))
        else:
            log = self._between(IDEA, arm.enlargement, arm.budget)
        # Rounded: it is a part of the cell's name, on every machine the same.
        return float(f"{math.exp(log):.3g}")

    def _mean_bits(self, ledger, cell):
        """Mean over the seeds of the search; None: training diverged."""
        found = [
            ledger.result(cell, seed)["bits_per_byte"]
            for seed in self._grid.sweep_seeds
        ]
        return None if None in found else sum(found) / len(found)

    def _between(self, kind, enlargement, budget):
        low, high = self._grid.swept
        first, second = (
            math.log(self.best[Arm(kind=kind, enlargement=enlargement, budget=swept)])
            for swept in (low, high)
        )
        share = math.log(budget / low) / math.log(high / low)
        return first + share * (second - first)


def longer(arm: Arm, grid: Grid) -> float:
    """Tokens a parameter that the FLOPs of a pruned run pay for from scratch."""
    (stage,) = plan(arm.cell(1.0), grid.scale)
    return stage.steps / grid.scale.total_steps
