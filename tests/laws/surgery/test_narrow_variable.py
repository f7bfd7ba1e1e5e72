"""A variable changes its shape, and the old value's memory is free."""

import keras
import numpy as np

from keras_idea.surgery.narrow_variable import resize
from tests.support.helpers import to_numpy


def size(value):
    """Numbers that a value of the backend still holds."""
    if keras.backend.backend() == "jax":
        return 0 if value.is_deleted() else value.size
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return int(
            tf.size(tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype))
        )
    return None  # torch frees what nothing refers to


def test_a_resized_variable():
    variable = keras.Variable(np.arange(12.0).reshape(4, 3), name="kernel")
    old = variable.value
    resize(variable, keras.ops.take(variable.value, [0, 2], axis=0))
    assert tuple(variable.shape) == (2, 3)
    np.testing.assert_array_equal(to_numpy(variable), [[0, 1, 2], [6, 7, 8]])
    assert size(old) in (0, None)
    variable.assign(np.ones((2, 3)))
    np.testing.assert_array_equal(to_numpy(variable), np.ones((2, 3)))
