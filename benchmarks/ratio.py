"""Ratios of what was measured in pairs, with intervals.

See step_cost.py.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The ratio of two measurements made in pairs.

    Attributes:
        median: float, median of the pairs' ratios.
        low: float, lower end of its 95 % bootstrap interval.
        high: float, upper end of it.
        of_fast: float, ratio of the two lower quartiles: on a shared machine the
            faster turns are the less disturbed. (Not of the two fastest: when
            the clock's thread wakes up late a turn seems too short.)
    """

    median: float
    low: float
    high: float
    of_fast: float


def paired_ratio(numerator, denominator, resamples=2000):
    """`Ratio` of two arrays whose entries were measured in the same rounds."""
    numerator, denominator = np.asarray(numerator), np.asarray(denominator)
    ratios = numerator / denominator
    generator = np.random.default_rng(0)
    picks = generator.integers(len(ratios), size=(resamples, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return Ratio(
        median=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        of_fast=float(np.quantile(numerator, 0.25) / np.quantile(denominator, 0.25)),
    )
