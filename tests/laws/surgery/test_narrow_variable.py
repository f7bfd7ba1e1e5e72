"""A variable changes its shape, and the old value's memory is free."""

import keras
import numpy as np
import pytest

from keras_idea.groups.cut import Cut
from keras_idea.surgery.narrow_in_place import narrow_variable
from tests.support.helpers import to_numpy

EXPERTS = np.array([[0, 2, 3], [1, 2, 5]])
# What narrowing slices, in which 6 neurons lie, and which of them stay.
CUTS = {
    "columns": ((4, 6), {"axis": 1}, [0, 2, 5]),
    "rows": ((6, 4), {"axis": 0}, [0, 2, 5]),
    "a bias": ((6,), {"axis": 0}, [1, 2]),
    "side by side": ((4, 12), {"axis": 1, "size": 2}, [0, 2, 5]),
    "two matrices": ((4, 12), {"axis": 1, "packing": "halves"}, [0, 2, 5]),
    "in pairs": ((4, 12), {"axis": 1, "packing": "pairs"}, [0, 2, 5]),
    "of experts": ((2, 4, 6), {"axis": 2, "group": 0}, EXPERTS),
    "of experts, in pairs": (
        (2, 4, 12),
        {"axis": 2, "group": 0, "packing": "pairs"},
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
