"""Which blocks stay, and which shapes are judged, against all there are."""

import itertools

import numpy as np
import pytest

from keras_idea.finding.budget import Budget, Costs
from keras_idea.shapes.blocks import fits, most_important
from keras_idea.shapes.grid import shapes_within, spread

FULL = {"kv_groups": 3, "blocks": 5, "neurons": 12}
LEAST = {"kv_groups": 0.3, "blocks": 0.6, "neurons": 0.3}
SIZES = {"kv_groups": (1, 2, 3), "blocks": (3, 4, 5), "neurons": (4, 6, 8, 10, 12)}


@pytest.mark.parametrize("kinds", ["aaaaaa", "ababab", "abbabb", "aabbab"])
@pytest.mark.parametrize("places", ["aaa", "ab", "abab", "abb"])
def test_the_greatest_sum_of_all_that_fit(kinds, places):
    importance = np.random.default_rng(len(kinds + places)).random(6)
    every = [
        list(kept)
        for kept in itertools.combinations(range(6), len(places))
        if [kinds[i] for i in kept] == list(places)
    ]
    assert fits(kinds, places) == bool(every)
    if not every:
        with pytest.raises(ValueError, match="follow one another in a pattern"):
            most_important(importance, kinds, places)
        return
    best = max(every, key=lambda kept: importance[kept].sum())
    assert most_important(importance, kinds, places) == best


def costs(shape):
    """An embedding, and blocks of heads and neurons."""
    kept = {**FULL, **shape}
    block = 10 * kept["kv_groups"] + 3 * kept["neurons"]
    return Costs(20 + kept["blocks"] * block, 0)


@pytest.mark.parametrize("limit", [120, 200, 260, 340])
def test_shapes_are_all_that_could_keep_no_more(limit):
    found = shapes_within(Budget(limit), costs, FULL, LEAST, round_to=2)
    axes = list(FULL)
    within = [
        sizes
        for sizes in itertools.product(*(SIZES[axis] for axis in axes))
        if costs(dict(zip(axes, sizes, strict=True))).parameters <= limit
    ]
    largest = {
        sizes
        for sizes in within
        if not any(s != sizes and (np.array(s) >= sizes).all() for s in within)
    }
    whole = [tuple({**FULL, **shape}[axis] for axis in axes) for shape in found]
    assert len(whole) == len(largest) and set(whole) == largest
    assert all(shape[axis] < FULL[axis] for shape in found for axis in shape)


@pytest.mark.parametrize(
    "limit, match", [(80, "cannot be met.*'neurons': 4"), (10**6, "itself is within")]
)
def test_no_shape(limit, match):
    with pytest.raises(ValueError, match=match):
        shapes_within(Budget(limit), costs, FULL, LEAST, round_to=2)


def test_judged_are_the_most_even_and_those_far_from_it():
    full = {"neurons": 10, "blocks": 10}
    shapes = [
        {"neurons": 4},
        {"blocks": 9, "neurons": 8},
        {"blocks": 4},
        {"neurons": 5},
    ]
    assert spread(shapes, full, 3) == [shapes[1], shapes[2], shapes[0]]
    assert len(spread(shapes, full, 9)) == 4
