"""Which blocks stay, compared with every choice."""

import itertools

import numpy as np
import pytest

from keras_idea._shapes.blocks import most_important


@pytest.mark.parametrize("kinds", ["ababab", "aabbab"])
@pytest.mark.parametrize("places", ["aaa", "ab", "abab", "abb"])
def test_the_greatest_sum_of_all_that_fit(kinds, places):
    importance = np.random.default_rng(len(kinds + places)).random(6)
    every = [
        list(kept)
        for kept in itertools.combinations(range(6), len(places))
        if [kinds[i] for i in kept] == list(places)
    ]
    if not every:
        with pytest.raises(ValueError, match="follow one another in a pattern"):
            most_important(importance, kinds, places)
        return
    best = max(every, key=lambda kept: importance[kept].sum())
    assert most_important(importance, kinds, places) == best
