"""Hard concrete masks and their constraint, against float64 NumPy."""

import numpy as np
import pytest

from keras_idea.functional import hard_concrete as f
from tests.support import method_reference as reference
from tests.support.helpers import to_numpy

LOG_ALPHA = np.array([-9.0, -4.0, -1.5, 0.0, 0.3, 2.0, 4.5, 5.0])


def slope(function, a, h=1e-6):
    return (function(a + h) - function(a - h)) / (2 * h)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("counter", [1, 70_000])
@pytest.mark.parametrize("key", [7, 2**32 - 1])
def test_uniform_is_the_same_on_every_backend(key, counter):
    values = to_numpy(f.uniform(key, counter, 50))
    expected = reference.uniform(key, counter, 50)
    np.testing.assert_array_equal(values, expected.astype("float32"))
    assert 0 <= values.min() and values.max() < 1


def test_sample_against_numpy():
    for u in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6):
        uniform = np.full(8, u)
        z = to_numpy(f.sample(LOG_ALPHA, uniform))
        expected = reference.sample(LOG_ALPHA, uniform)
        np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    # By hand: logit(0.5) = 0, sigmoid(0) = 0.5, 1.2 * 0.5 - 0.1.
    np.testing.assert_allclose(to_numpy(f.sample([0.0], [0.5])), [0.5])


def test_expected_keep():
    """Against the formula, and against the mean of many samples."""
    keep = to_numpy(f.keep_probability(LOG_ALPHA))
    np.testing.assert_allclose(keep, reference.keep(LOG_ALPHA), rtol=1e-5)
    # By hand: logit(0.1 / 1.2) = -log 11; a = 0: 1 - 1 / (1 + 11^(2/3)).
    assert np.isclose(keep[3], 1 - 1 / (1 + 11 ** (2 / 3)), rtol=1e-6)
    samples = 20_000
    for a, p in zip(LOG_ALPHA, keep, strict=True):
        noise = f.noise(1, 0, samples)
        z = to_numpy(f.sample(np.full(samples, a), noise))
        error = (p * (1 - p) / samples) ** 0.5
        assert abs((z > 0).mean() - p) < 4 * error + 1e-9


@pytest.mark.parametrize("k", [1, 3, 8])
def test_deterministic_mask(k):
    rng = np.random.default_rng(0)
    log_alpha = rng.normal(size=8, scale=3)
    z = to_numpy(f.final_mask(log_alpha, k))
    assert (z > 0).sum() == k
    np.testing.assert_allclose(z, reference.mask(log_alpha, k), rtol=1e-5)


def test_lagrangian_and_its_slopes():
    rng = np.random.default_rng(0)
    masks = rng.uniform(-4, 4, size=(3, 8))  # inside the clamp, which has no slope
    target, multipliers = 0.6, (-1.5, 7.0)

    def lagrangian(masks, multipliers):
        s = 1 - reference.keep(masks).mean(axis=1)
        return np.mean(
            multipliers[0] * (s - target) + multipliers[1] * (s - target) ** 2
        )

    sparsity = f.expected_sparsity(masks)
    assert np.allclose(to_numpy(sparsity), 1 - reference.keep(masks).mean(axis=1))

    def by_mask(one):
        return slope(lambda h: lagrangian(masks + h * one, multipliers), 0)

    def by_multiplier(one):
        return slope(lambda h: lagrangian(masks, multipliers + h * one), 0)

    expected = [by_mask(one) for one in np.eye(24).reshape(24, 3, 8)]
    slopes = [to_numpy(f.constraint_slope(mask, target, multipliers)) for mask in masks]
    np.testing.assert_allclose(np.ravel(slopes) / 3, expected, rtol=1e-4, atol=1e-7)
    ascent = to_numpy(f.constraint_ascent(sparsity - target))
    expected = [by_multiplier(one) for one in np.eye(2)]
    np.testing.assert_allclose(ascent, expected, rtol=1e-4)
