"""Milestones: counted by hand, bounded, and close to the cubic's integral."""

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.functional.milestones import (
    bucket,
    milestones,
    most_milestones,
    physical_width,
)


@pytest.mark.parametrize(
    "full, target, expected",
    [
        (16, 4, 2),  # twelve go: an eighth is one and a half
        (16, 16, 1),
        (512, 192, 40),
        (1280, 264, 127),
        (1280, 256, 128),
        (2048, 512, 256),  # 192 is no multiple of 128
        (16384, 4096, 1536),
    ],
)
def test_bucket(full, target, expected):
    assert bucket(full, target) == expected


def test_milestones_by_hand():
    """16 -> 4 over 4 steps after step 2: 16 16 16 9 6 4 4; buckets of 2."""
    schedule = ki.CubicWidth(16, 4, begin_step=2, prune_steps=4)
    # 14, 12 and 10 are passed at step 3, 8 and 6 at step 4.
    assert milestones([schedule], 6) == [3, 4, 6]
    # All that are left: the widest FFN sets them.
    assert milestones([ki.CubicWidth(12, 4, 2, 4), schedule], 6) == [3, 4, 6]
    assert milestones([ki.CubicWidth(4, 4, 2, 4)], 6) == [6]
    # Widths that fall at once, as those of methods that decide once.
    assert milestones([ki.CubicWidth(16, 4, 2, 1)], 2) == [2]
    assert milestones([ki.CubicWidth(16, 4, 5, 1)], 6) == [6]


@pytest.mark.parametrize("full", [2, 67, 4096])
@pytest.mark.parametrize("share", [0.1, 0.375, 0.9])
@pytest.mark.parametrize("every", [1, 7])
def test_at_most_eight_and_never_too_narrow(full, share, every):
    target = max(1, round(full * share))
    schedule = ki.CubicWidth(full, target, 10, 100, every)
    steps = milestones([schedule], 110)
    assert 1 <= len(steps) <= 8 and steps == sorted(set(steps))
    assert steps[0] > 10 and steps[-1] == 110
    step_down = bucket(full, target)
    filled = 127 if step_down >= 128 else 0
    physical, widths = full, []
    for step in range(120):
        if step in steps:
            physical = physical_width(schedule(step), full, target)
        widths.append(physical)
        assert schedule(step) <= physical
        assert physical <= schedule(step) + step_down + filled
    assert widths[-1] == target


@pytest.mark.parametrize(
    "full, target, percent", [(512, 192, 1.7), (2048, 512, 3.0), (8192, 3072, 1.7)]
)
def test_a_run_costs_within_five_per_cent_of_the_integral(full, target, percent):
    """Neurons times steps of half a run enlarged, a quarter pruned, one recovered."""
    begin, prune, total = 500, 250, 1000
    schedule = ki.CubicWidth(full, target, begin, prune)
    due = milestones([schedule], begin + prune)
    neurons, physical = 0, full
    for step in range(total):
        if step in due:
            physical = physical_width(schedule(step), full, target)
        neurons += physical
    # Of the cubic over [0, 1]: a quarter.
    integral = begin * full + (total - begin) * target + prune * (full - target) / 4
    assert integral < neurons < 1.05 * integral
    assert np.isclose(100 * (neurons / integral - 1), percent, atol=0.1)


@pytest.mark.parametrize(
    "steps, expected", [(1, 8), (80, 8), (100, 10), (4095, 63), (10**6, 64)]
)
def test_eager_milestones_are_the_root_of_the_steps(steps, expected):
    """The m that is least in c m + g T / 2m, found by trying, for g = 2c."""
    assert most_milestones(steps, eager=True) == expected
    assert most_milestones(steps, eager=False) == 8
    tried = min(range(8, 65), key=lambda m: m + steps / m)
    assert abs(tried - expected) <= 1
