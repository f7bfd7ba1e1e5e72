"""A model that is made already computes in another dtype."""

import keras
import ml_dtypes
import numpy as np
import pytest

from keras_idea.models import decoder
from keras_idea.models.decoder import compute_in
from tests.support.tiny_decoder import TINY


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_layers_cast_their_weights_which_stay_float32(dtype):
    """On jax and torch a product of bfloat16 and float32 would be float32, silently."""
    model = compute_in(decoder(TINY), dtype)
    projection = model.get_layer("block_0").attention.query
    assert {variable.dtype for variable in model.weights} == {"float32"}
    x = np.random.default_rng(0).normal(size=(3, 16)).astype(ml_dtypes.bfloat16)
    found = projection(keras.ops.convert_to_tensor(x))
    assert keras.backend.standardize_dtype(found.dtype) == "bfloat16"
    kernel = keras.ops.convert_to_numpy(projection.kernel).astype(ml_dtypes.bfloat16)
    expected = x.astype("float64") @ kernel.astype("float64")
    found = keras.ops.convert_to_numpy(keras.ops.cast(found, "float32"))
    np.testing.assert_allclose(found, expected, rtol=2**-8, atol=1e-6)
    logits = model(np.zeros((1, 4), "int32"))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
