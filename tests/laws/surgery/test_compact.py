"""compact: a new, narrow model that computes, trains and saves as the old one."""

from typing import NamedTuple

import keras
import numpy as np

import keras_idea as ki
from tests.support.helpers import to_numpy


class Pair(NamedTuple):
    """Two layers by name."""

    first: keras.layers.Layer
    second: keras.layers.Layer


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class InTuples(keras.Model):
    """Its FFNs are in tuples, which tensorflow wraps."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.plain = (ki.PrunableGatedFFN(8), ki.PrunableGatedFFN(8))
        self.named = Pair(ki.PrunableGatedFFN(8), keras.layers.Dense(8))

    def call(self, inputs):
        hidden = self.plain[1](self.plain[0](inputs))
        return self.named.second(self.named.first(hidden))


def test_held_in_tuples(data):
    model = InTuples()
    model(data[0])
    for ffn in ki.find_ffns(model):
        ffn.mask.assign(np.float32(np.arange(8) < 5))
    narrow = ki.compact(model)
    held = [*narrow.plain, narrow.named.first]
    assert [type(layer) for layer in held] == [ki.GatedFFN] * 3
    assert [layer.hidden_dim for layer in held] == [5] * 3
    expected = to_numpy(model(data[0]))
    within = 1e-6 * np.abs(expected).max()  # other shapes add in another order
    np.testing.assert_allclose(to_numpy(narrow(data[0])), expected, atol=within)


def test_after_a_step_by_hand():
    """On jax a model still holds the values of `train_on_batch`, which no copy has."""
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((4,)), dense(6, "relu"), dense(2)])
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((3, 4), "float32"), np.zeros((3, 2), "float32"))
    up, bias, down, last = model.get_weights()
    up[:, 0] = bias[0] = down[0] = 0.0
    model.set_weights([up, bias, down, last])
    expected = [up[:, 1:], bias[1:], down[1:], last]
    for one, other in zip(ki.compact(model).get_weights(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
