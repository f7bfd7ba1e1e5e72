"""Steps of narrowing: counted by hand, bounded, and close to the cubic's integral."""

import functools
import math

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.functional.width import narrowing_steps, stored_width

progressive = functools.partial(narrowing_steps, "progressive")


def test_by_hand():
    """16 -> 4 over 4 steps after step 2: 16 16 16 9 6 4 4; by two neurons."""
    schedule = ki.CubicWidth(16, 4, begin_step=2, prune_steps=4)
    # 14, 12 and 10 are passed at step 3, 8 and 6 at step 4.
    assert progressive([schedule], 6) == [3, 4, 6]
    # The FFN that loses most neurons sets them.
    assert progressive([ki.CubicWidth(12, 4, 2, 4), schedule], 6) == [3, 4, 6]
    assert progressive([ki.CubicWidth(4, 4, 2, 4)], 6) == [6]
    # Widths that fall at once, as those of methods that decide once.
    assert progressive([ki.CubicWidth(16, 4, 2, 1)], 2) == [2]
    assert progressive([ki.CubicWidth(16, 4, 5, 1)], 6) == [6]


@pytest.mark.parametrize("full", [2, 67, 1280, 4096])
@pytest.mark.parametrize("share", [0.1, 0.375, 0.9])
@pytest.mark.parametrize("every", [1, 7])
def test_at_most_eight_and_never_too_narrow(full, share, every):
    target = max(1, round(full * share))
    schedule = ki.CubicWidth(full, target, 10, 100, every)
    steps = progressive([schedule], 110)
    assert 1 <= len(steps) <= 8 and steps == sorted(set(steps))
    assert steps[0] > 10 and steps[-1] == 110
    down, filled = math.ceil((full - target) / 8), 0
    if down >= 128:  # multiples of 128, filled up with pruned neurons
        down, filled = math.ceil(down / 128) * 128, 127
    physical, widths = full, []
    for step in range(120):
        if step in steps:
            physical = stored_width(schedule(step), schedule)
        widths.append(physical)
        assert schedule(step) <= physical
        assert physical <= schedule(step) + max(1, down) + filled
    assert widths[-1] == target


@pytest.mark.parametrize(
    "full, target, percent", [(512, 192, 1.7), (2048, 512, 3.0), (8192, 3072, 1.7)]
)
def test_a_run_costs_within_five_per_cent_of_the_integral(full, target, percent):
    """Neurons times steps of half a run enlarged, a quarter pruned, one recovered."""
    begin, prune, total = 500, 250, 1000
    schedule = ki.CubicWidth(full, target, begin, prune)
    due = progressive([schedule], begin + prune)
    neurons, physical = 0, full
    for step in range(total):
        if step in due:
            physical = stored_width(schedule(step), schedule)
        neurons += physical
    # Of the cubic over [0, 1]: a quarter.
    integral = begin * full + (total - begin) * target + prune * (full - target) / 4
    assert integral < neurons < 1.05 * integral
    assert np.isclose(100 * (neurons / integral - 1), percent, atol=0.1)


@pytest.mark.parametrize("steps, most", [(1000, 31), (4095, 63), (10**6, 64)])
def test_eager_narrowings_are_the_root_of_the_steps(steps, most):
    schedule = ki.CubicWidth(8 * most + 8, 8, 0, steps)
    assert len(progressive([schedule], steps, eager=True)) == most
    assert len(progressive([schedule], steps)) == 8
