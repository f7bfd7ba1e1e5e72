"""The exact top-k mask: counts, ties, the dead, and tracing."""

import keras
import numpy as np
import pytest

from keras_idea import functional
from tests.support.helpers import to_numpy


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


def test_ties_keep_the_lower_index():
    mask = functional.top_k_mask([0.0, 2.0, 1.0, 2.0, 1.0, 1.0], k=4)
    np.testing.assert_array_equal(to_numpy(mask), [0, 1, 1, 1, 1, 0])
    mask = functional.top_k_mask(np.zeros(6), k=2)
    np.testing.assert_array_equal(to_numpy(mask), [1, 1, 0, 0, 0, 0])


def test_at_least_one_and_at_most_the_living():
    importance, alive = [5.0, 1.0, 2.0], [0.0, 1.0, 1.0]
    assert to_numpy(functional.top_k_mask(importance, 0, alive)).tolist() == [0, 0, 1]
    assert to_numpy(functional.top_k_mask(importance, 3, alive)).tolist() == [0, 1, 1]
    assert to_numpy(functional.top_k_mask(importance, 99)).tolist() == [1, 1, 1]


def test_the_dead_are_not_revived_by_importance():
    mask = functional.top_k_mask([9.0, 1.0, 2.0], k=1, alive=[0.0, 1.0, 1.0])
    np.testing.assert_array_equal(to_numpy(mask), [0, 0, 1])


def test_nan_and_infinity():
    mask = functional.top_k_mask([float("nan"), 0.0, float("inf"), 1.0], k=2)
    np.testing.assert_array_equal(to_numpy(mask), [0, 0, 1, 1])
    mask = functional.top_k_mask([float("nan"), 0.0, float("nan")], k=2)
    np.testing.assert_array_equal(to_numpy(mask), [1, 1, 0])


def test_k_may_be_a_tensor_inside_a_compiled_function():
    """A Keras layer's call is traced on every backend."""

    class Mask(keras.layers.Layer):
        def call(self, k):
            return functional.top_k_mask([3.0, 1.0, 2.0], k[0, 0])

    model = keras.Sequential([Mask()])
    for k, expected in ((1, [1, 0, 0]), (2, [1, 0, 1])):
        result = model.predict(np.array([[k]], "int32"), batch_size=1, verbose=0)
        np.testing.assert_array_equal(result, expected)


def test_take_neurons_slices_and_copies():
    kernel = np.arange(12.0).reshape(3, 4)
    result = functional.take_neurons(kernel, kept=[0, 3], axis=1)
    np.testing.assert_array_equal(to_numpy(result), kernel[:, [0, 3]])
    tensor = keras.ops.convert_to_tensor(kernel)
    copy = functional.take_neurons(tensor, kept=None, axis=None)
    assert copy is not tensor
    np.testing.assert_array_equal(to_numpy(copy), kernel)
