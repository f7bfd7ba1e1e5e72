"""Importance and the exact top-k mask, against NumPy: counts, ties, the dead."""

import keras
import numpy as np
import pytest

from keras_idea import functional
from tests.support.helpers import to_numpy

pytestmark = pytest.mark.daily("torch", "jax", "tensorflow")


def reference_mask(importance, k, alive):
    order = np.argsort(-importance, kind="stable")
    kept = [i for i in order if alive[i]][: max(1, k)]
    return np.isin(np.arange(len(importance)), kept).astype("float32")


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("some_dead", [False, True])
def test_against_a_stable_sort(ties, some_dead):
    rng = np.random.default_rng(0)
    for k in (1, 2, 7, 13, 31, 32):
        importance = rng.random(32).astype("float32")
        if ties:
            importance = np.round(importance * 3)  # four values among 32
        alive = (rng.random(32) < 0.7).astype("float32") if some_dead else np.ones(32)
        mask = functional.top_k_mask(importance, k, alive)
        np.testing.assert_array_equal(
            to_numpy(mask), reference_mask(importance, k, alive)
        )


def test_at_least_one_and_at_most_the_living():
    importance, alive = [5.0, 1.0, 2.0], [0.0, 1.0, 1.0]
    assert to_numpy(functional.top_k_mask(importance, 0, alive)).tolist() == [0, 0, 1]
    assert to_numpy(functional.top_k_mask(importance, 3, alive)).tolist() == [0, 1, 1]
    assert to_numpy(functional.top_k_mask(importance, 99)).tolist() == [1, 1, 1]


def test_nan_and_infinity():
    mask = functional.top_k_mask([float("nan"), 0.0, float("inf"), 1.0], k=2)
    np.testing.assert_array_equal(to_numpy(mask), [0, 0, 1, 1])
    mask = functional.top_k_mask([float("nan"), 0.0, float("nan")], k=2)
    np.testing.assert_array_equal(to_numpy(mask), [1, 1, 0])


@pytest.fixture
def scores():
    return np.random.default_rng(0).random((3, 7, 5)).astype("float32")


def test_sensitivity_is_the_product_s_magnitude():
    kernel, gradient = [[1.0, -2.0], [0.5, 4.0]], [[3.0, 0.5], [-2.0, 0.0]]
    result = functional.sensitivity(kernel, gradient)
    np.testing.assert_array_equal(to_numpy(result), [[3.0, 1.0], [1.0, 0.0]])


def test_sensitivity_of_half_precision_is_computed_in_float32():
    kernel = keras.ops.cast([300.0], "float16")
    result = functional.sensitivity(kernel, keras.ops.cast([300.0], "float16"))
    assert to_numpy(result) == [90000.0]  # float16 ends at 65504


def test_ema_from_zero_has_no_bias_correction():
    value = 0.0
    for new in (1.0, 2.0, 3.0):
        value = functional.ema(new, value, decay=0.4)
    # 0.6 * (3 + 0.4 * 2 + 0.16 * 1)
    assert np.isclose(value, 2.376)


@pytest.mark.parametrize("f1", ["mean", "max"])
@pytest.mark.parametrize("f2", ["mean", "max"])
def test_neuron_importance_against_numpy(scores, f1, f2):
    reduce = {"mean": np.mean, "max": np.max}
    expected = [
        reduce[f2]([reduce[f1](scores[m, k]) for m in range(3)]) for k in range(7)
    ]
    result = functional.neuron_importance(scores, f1, f2)
    np.testing.assert_allclose(to_numpy(result), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (1, 7), (3, 7, 5, 1)])
def test_scores_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"`scores` must have shape \(matrices, hid"):
        functional.neuron_importance(np.zeros(shape))
