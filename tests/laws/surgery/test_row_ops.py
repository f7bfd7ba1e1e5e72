"""What a step computes over rows, against NumPy; on torch by operations of its own."""

import keras
import numpy as np
import pytest

from keras_idea._groups.cut import Cut
from keras_idea._step.row_ops import mean_sensitivity, of_active, zero_rows
from keras_idea._surgery.narrow_in_place import narrow_variable
from tests.support.helpers import to_numpy

RNG = np.random.default_rng(0)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_mean_sensitivity(dtype, axis):
    kernel, gradient = RNG.normal(size=(2, 6, 4)).astype("float32")
    given = [keras.ops.cast(value, dtype) for value in (kernel, gradient)]
    product = np.abs(
        np.multiply(*(to_numpy(keras.ops.cast(v, "float32")) for v in given))
    )
    found = to_numpy(mean_sensitivity(*given, axis))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, product.mean(axis), rtol=1e-6)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pruned", [1.0, np.nan, np.inf])
def test_pruned_rows_are_zero_whatever_they_were(pruned, dtype):
    """By no product, which would leave NaN: a regularizer's at zero, for one."""
    mask = np.array([1, 0, 1, 1, 0, 1], "float32")
    for shape, axis in [((4, 6), 1), ((6, 4), 0), ((6,), 0)]:
        right = np.ones(shape) * (mask[:, None] if shape == (6, 4) else mask)
        variable = keras.Variable(np.where(right, 1.0, pruned), dtype=dtype)
        cut, given = Cut(variable, axis), keras.ops.convert_to_tensor(mask)
        found = of_active(cut, variable.value, given)
        zero_rows([cut], given)
        for value in (found, variable):
            value = to_numpy(keras.ops.cast(value, "float32"))
            np.testing.assert_array_equal(value, right)
        assert keras.backend.standardize_dtype(variable.dtype) == dtype


EXPERTS = np.array([[0, 2, 3], [1, 2, 5]])
HALVES, PAIRS = np.arange(12).reshape(2, 6).T, np.arange(12).reshape(6, 2)
# What narrowing slices, in which 6 neurons lie, and which of them stay.
CUTS = {
    "columns": ((4, 6), {"axis": 1}, [0, 2, 5]),
    "rows": ((6, 4), {"axis": 0}, [0, 2, 5]),
    "a bias": ((6,), {"axis": 0}, [1, 2]),
    "side by side": ((4, 12), {"axis": 1, "places": PAIRS}, [0, 2, 5]),
    "two matrices": ((4, 12), {"axis": 1, "places": HALVES, "matrices": 2}, [0, 2, 5]),
    "in pairs": ((4, 12), {"axis": 1, "places": PAIRS, "matrices": 2}, [0, 2, 5]),
    "of experts": ((2, 4, 6), {"axis": 2, "experts": 0}, EXPERTS),
    "of experts, in pairs": (
        (2, 4, 12),
        {"axis": 2, "places": PAIRS, "experts": 0, "matrices": 2},
        EXPERTS,
    ),
}


@pytest.mark.parametrize("shape, how, kept", CUTS.values(), ids=CUTS.keys())
def test_what_was_cut_is_put_back(shape, how, kept):
    """The neurons that went are zeros; of a bias, and what is like it, nothing is."""
    values = np.random.default_rng(0).normal(size=shape).astype("float32")
    variable = keras.Variable(values)
    cut = Cut(variable, **how)
    kept = np.asarray(kept)
    narrow = to_numpy(cut.take(kept))
    put_back = narrow_variable(None, cut, kept)
    np.testing.assert_array_equal(to_numpy(variable), narrow)
    put_back()
    stays = np.zeros((*kept.shape[:-1], 6), "float32")
    np.put_along_axis(stays, kept, 1.0, axis=-1)
    expected = values * to_numpy(cut.spread(keras.ops.convert_to_tensor(stays)))
    if len(shape) == 1:
        expected = values
    np.testing.assert_array_equal(to_numpy(variable), expected)
