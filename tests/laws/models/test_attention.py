"""Rotary embedding and attention against NumPy, and refusals.

Shapes: B batch, T tokens, D model_dim, N query heads, H head_dim.
"""

import re

import keras
import numpy as np
import pytest

from keras_idea.models import CausalSelfAttention, rotary
from tests.support.decoder_reference import (
    attention_reference,
    numpy_of,
    rotary_reference,
)


@pytest.mark.parametrize("max_wavelength", [10000.0, 100.0])
def test_rotary_equals_complex_multiplication(max_wavelength):
    x_BTNH = np.random.default_rng(1).normal(size=(2, 40, 3, 8))
    y_BTNH = numpy_of(rotary(keras.ops.cast(x_BTNH, "float32"), max_wavelength))
    reference = rotary_reference(x_BTNH, max_wavelength)
    np.testing.assert_allclose(y_BTNH, reference, atol=1e-5)


def test_rotary_products_depend_on_the_distance_only():
    rng = np.random.default_rng(2)
    q_H, k_H = rng.normal(size=(2, 8))
    everywhere = (1, 30, 1, 8)
    q_TH, k_TH = (
        numpy_of(
            rotary(keras.ops.cast(np.broadcast_to(x, everywhere), "float32"), 50.0)
        )[0, :, 0]
        for x in (q_H, k_H)
    )
    product_TT = q_TH @ k_TH.T
    for distance in (0, 1, 7):
        diagonal = np.diagonal(product_TT, -distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)
    assert abs(product_TT[7, 0] - product_TT[1, 0]) > 1e-2


def test_rotary_keeps_the_dtype_and_tells_far_positions_apart():
    x_BTNH = keras.ops.ones((1, 300, 1, 2), "bfloat16")
    y_BTNH = rotary(x_BTNH)
    assert keras.backend.standardize_dtype(y_BTNH.dtype) == "bfloat16"
    # bfloat16 has no 257: angles computed in it would make these two equal.
    far_TH = numpy_of(y_BTNH)[0, 256:258, 0]
    assert np.abs(far_TH[0] - far_TH[1]).max() > 0.1


@pytest.mark.parametrize("kv_heads", [None, 4, 2, 1])
def test_attention_equals_numpy(kv_heads):
    x_BTD = np.random.default_rng(3).normal(size=(2, 7, 16))
    layer = CausalSelfAttention(4, kv_heads, rope_max_wavelength=100.0)
    y_BTD = numpy_of(layer(keras.ops.cast(x_BTD, "float32")))
    kernels = [
        numpy_of(projection.kernel).astype("float64")
        for projection in (
            layer.query,
            layer.key,
            layer.value,
            layer.output_projection,
        )
    ]
    assert kernels[1].shape == (16, 4 * (kv_heads or 4))
    reference = attention_reference(x_BTD, *kernels, kv_heads or 4, 100.0)
    np.testing.assert_allclose(y_BTD, reference, atol=2e-6)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: CausalSelfAttention(4, 3), "must divide `num_heads`"),
        (lambda: CausalSelfAttention(0), "`num_heads` must be an integer >= 1"),
        (
            lambda: CausalSelfAttention(4, rope_max_wavelength=0),
            re.escape("`rope_max_wavelength` must be a number in [1.0, inf)"),
        ),
        (
            lambda: CausalSelfAttention(4).build((None, None, 18)),
            "`model_dim` must be a multiple of `num_heads`",
        ),
    ],
)
def test_bad_layer_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
