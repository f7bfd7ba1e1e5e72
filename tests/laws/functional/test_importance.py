"""The formulas of importance, against NumPy and by hand."""

import keras
import numpy as np
import pytest

from keras_idea import functional
from tests.support.helpers import to_numpy


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


def test_reduced_rows_give_the_same_importance(scores):
    whole = functional.neuron_importance(scores, "mean", "max")
    reduced = functional.neuron_importance(scores.mean(axis=2), "mean", "max")
    np.testing.assert_allclose(to_numpy(whole), to_numpy(reduced), rtol=1e-6)


def test_defaults_are_mean_then_max(scores):
    result = functional.neuron_importance(scores)
    np.testing.assert_allclose(
        to_numpy(result), scores.mean(axis=2).max(axis=0), rtol=1e-6
    )


@pytest.mark.parametrize("matrices", [2, 4])
def test_of_as_many_matrices_as_there_are(matrices):
    """Up and down; or layers that share their neurons."""
    scores = np.random.default_rng(1).random((matrices, 7)).astype("float32")
    for f2, reduce in (("mean", np.mean), ("max", np.max)):
        result = functional.neuron_importance(scores, matrix_reduce=f2)
        np.testing.assert_allclose(to_numpy(result), reduce(scores, 0), rtol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (1, 7), (3, 7, 5, 1)])
def test_scores_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"`scores` must have shape \(matrices, hid"):
        functional.neuron_importance(np.zeros(shape))


def test_unknown_reductions_are_refused(scores):
    with pytest.raises(ValueError, match="`row_reduce` must be one of 'mean', 'max'"):
        functional.neuron_importance(scores, row_reduce="median")
    with pytest.raises(ValueError, match="`matrix_reduce` must be one of"):
        functional.neuron_importance(scores, matrix_reduce="sum")
