"""A mask of ones is left out on eager torch, however it was changed."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, set_random_weights, to_numpy


def by_assign(mask, value):
    mask.assign(value)


def by_data(mask, value):
    import torch

    mask.value.data.copy_(torch.from_numpy(value))  # no version is counted


def by_new_data(mask, value):
    import torch

    mask.value.data = torch.from_numpy(value)


@pytest.mark.parametrize("change", [by_assign, by_data, by_new_data])
def test_a_change_is_seen(change):
    from keras_idea.keras_private.mask_torch import is_whole

    with keras.device("cpu"):  # on another device it is not looked at
        mask = keras.Variable(np.ones(4), trainable=False)
        assert is_whole(mask)
        for value in ([1, 0, 1, 1], [1, 1, 1, 1]):
            change(mask, np.array(value, "float32"))
            assert is_whole(mask) == all(value)
    with keras.device("meta"):
        assert not is_whole(keras.Variable(np.ones(4)))


def test_a_pass_without_values(data):
    """A symbolic pass cannot look at a mask; the graph has it, and obeys it."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    model = residual_model()
    set_random_weights(model)
    x = torch.from_numpy(data[0][:2])
    graph = make_fx(model, tracing_mode="real")(x)
    ki.find_ffns(model)[0].mask.assign(np.arange(16) < 4)
    np.testing.assert_allclose(
        to_numpy(graph(x)), to_numpy(model(x)), rtol=1e-5, atol=1e-6
    )
