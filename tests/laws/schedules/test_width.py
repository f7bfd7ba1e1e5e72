"""The cubic width: exact ends, monotone, whole, the same traced as in Python."""

from fractions import Fraction

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keras_idea as ki

WIDTHS = st.tuples(
    st.integers(1, 16384),
    st.floats(0, 1),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 1000),
)


@settings(max_examples=60, deadline=None)
@given(WIDTHS)
def test_ends_and_monotone(drawn):
    full, share, begin, steps, every = drawn
    target = max(1, round(full * share))
    width = ki.CubicWidth(full, target, begin, steps, every)
    assert width(0) == full and width(begin) == full
    assert width(begin + steps) == target and width(begin + steps + 10**6) == target
    samples = [width(begin + steps * i // 50) for i in range(51)]
    assert samples == sorted(samples, reverse=True)
    assert all(isinstance(value, int) for value in samples)


def test_every_step_against_exact_fractions():
    width = ki.CubicWidth(512, 192, begin_step=10, prune_steps=37)
    for step in range(60):
        left = 1 - Fraction(min(max(step - 10, 0), 37), 37)
        exact = 192 + (512 - 192) * left**3
        assert abs(width(step) - exact) <= Fraction(1, 2)


@pytest.mark.daily("torch", "jax", "tensorflow")
def test_traced_equals_python_at_the_paper_s_size():
    width = ki.CubicWidth(16384, 6528, begin_step=100, prune_steps=9_999_991)
    rng = np.random.default_rng(0)
    steps = np.concatenate([rng.integers(0, 10_000_200, 300), [100, 101, 10_000_091]])
    traced = [int(width(keras.ops.convert_to_tensor(s, "int32"))) for s in steps]
    assert traced == [width(int(step)) for step in steps]


def test_update_every_holds_the_width_but_not_past_the_end():
    every = ki.CubicWidth(100, 10, begin_step=3, prune_steps=10, update_every=4)
    plain = ki.CubicWidth(100, 10, begin_step=3, prune_steps=10)
    widths = [every(step) for step in range(16)]
    seven, eleven = plain(7), plain(11)
    assert widths == [100] * 7 + [seven] * 4 + [eleven] * 2 + [10] * 3


def test_config_and_equality():
    width = ki.CubicWidth(16, 4, 2, 5, 3)
    assert ki.CubicWidth(**width.get_config()) == width
    assert ki.CubicWidth(16, 4, 2, 5, 2) != width
