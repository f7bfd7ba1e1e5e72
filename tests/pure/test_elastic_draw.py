"""Which width a step computes: by the seed and the step alone."""

import collections

import numpy as np
import pytest

from keras_idea._elastic.widths import draw

NAMES = ["small", "medium"]


def test_in_turn():
    drawn = [draw("turn", NAMES, 7, step) for step in range(6)]
    assert drawn == ["full", "small", "medium"] * 2
    twos = [draw("turn", NAMES, 7, step, stride=2) for step in range(0, 12, 2)]
    assert twos == drawn


def test_by_probabilities():
    """As often as asked for, whatever the step before, in any process."""
    odds = {"small": 0.5, "medium": 0.2, "full": 0.3}
    drawn = [draw(odds, NAMES, 0, step) for step in range(4000)]
    counts = collections.Counter(drawn)
    for name, share in odds.items():
        deviation = np.sqrt(share * (1 - share) / 4000)
        assert counts[name] / 4000 == pytest.approx(share, abs=4 * deviation)
    assert drawn[123] == draw(odds, NAMES, 0, 123)
    assert drawn != [draw(odds, NAMES, 1, step) for step in range(4000)]
