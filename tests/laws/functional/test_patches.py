"""A convolution is the product of its patches and its kernel, as Keras computes it."""

import itertools

import keras
import numpy as np
import pytest

from keras_idea.functional.patches import patches, transposed_patches
from tests.support.helpers import to_numpy

SIZES = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}


def convolution(rank, kernel, stride, dilation, padding):
    return getattr(keras.layers, f"Conv{rank}D")(
        4, kernel, strides=stride, dilation_rate=dilation, padding=padding
    )


WAYS = [
    (rank, kernel, stride, dilation, padding)
    for rank, kernel, (stride, dilation), padding in itertools.product(
        SIZES, (1, 2, 3), ((1, 1), (2, 1), (3, 1), (1, 2)), ("valid", "same", "causal")
    )
    if (rank == 1 or padding != "causal")
    and (padding != "valid" or (kernel - 1) * dilation < min(SIZES[rank]))
]


def of(layer, inputs, most=None):
    slides = layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding
    return to_numpy(patches(inputs, *slides, most))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_times_the_kernel_it_is_the_convolution(way):
    layer = convolution(*way)
    shape = (2, *SIZES[way[0]], 3)
    inputs = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = to_numpy(layer(inputs))
    kernel = to_numpy(layer.kernel).reshape(-1, 4)
    found = of(layer, inputs) @ kernel
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=2e-6)


TRANSPOSED = [
    (rank, kernel, stride, dilation, padding, more)
    for rank, kernel, (stride, dilation), padding, more in itertools.product(
        SIZES, (1, 2, 3), ((1, 1), (2, 1), (3, 1), (1, 2)), ("valid", "same"), (None, 1)
    )
    if more is None or more < stride
]


@pytest.mark.parametrize("way", TRANSPOSED, ids=str)
def test_transposed_likewise(way):
    rank, kernel, stride, dilation, padding, more = way
    layer = getattr(keras.layers, f"Conv{rank}DTranspose")(
        4,
        kernel,
        strides=stride,
        dilation_rate=dilation,
        padding=padding,
        output_padding=more,
    )
    shape = (2, *SIZES[rank], 3)
    inputs = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = to_numpy(layer(inputs))
    slides = layer.kernel_size, layer.strides, layer.dilation_rate, layer.padding
    added = layer.output_padding or [None] * rank
    matrix = np.swapaxes(to_numpy(layer.kernel), -1, -2).reshape(-1, 4)
    found = to_numpy(transposed_patches(inputs, *slides, added)) @ matrix
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=2e-6)


def test_some_places_are_always_the_same_ones():
    layer = convolution(2, 3, 1, 1, "same")
    inputs = np.random.default_rng(0).normal(size=(2, *SIZES[2], 3)).astype("float32")
    layer.build(inputs.shape)
    every, some = of(layer, inputs), of(layer, inputs, 5)
    at = [np.flatnonzero((every[0] == place).all(-1)).item() for place in some[0]]
    assert some.shape == (2, 5, 27)
    assert at == sorted(set(at))
    np.testing.assert_array_equal(some, every[:, at])
    np.testing.assert_array_equal(some, of(layer, inputs, 5))
