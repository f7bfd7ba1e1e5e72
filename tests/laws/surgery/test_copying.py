"""`compact` copies what is there: no config, no constructor, nothing shared."""

import functools

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.masks import prune_by_hand

X = np.random.default_rng(0).normal(size=(6, 8)).astype("float32")


class Net(keras.Model):
    """Without `get_config`: Keras notes the defaults, of what it was not given."""

    def __init__(self, epsilon=1e-6, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon)
        self.drop = keras.layers.Dropout(rate, seed=1)
        self.up, self.down = keras.layers.Dense(12, "gelu"), keras.layers.Dense(8)

    def call(self, x):
        return self.drop(self.down(self.up(self.norm(x))))


MODELS = {
    "no config": lambda: Net(epsilon=0.3, rate=0.5),
}


def prune_half(model):
    for ffn in ki.find_ffns(model):
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) % 2)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_is_the_model_and_shares_nothing(kind):
    model = MODELS[kind]()
    x = X
    model(x)
    prune_half(model)
    expected = keras.ops.convert_to_numpy(model(x))
    narrow = ki.compact(model)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [6]
    assert type(narrow) is type(model)
    found = keras.ops.convert_to_numpy(narrow(x))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for variable in narrow.trainable_variables:
        variable.assign(np.full(variable.shape, 0.25))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(x)), expected)
    changed = keras.ops.convert_to_numpy(narrow(x))
    assert np.abs(changed - found).max() > 1e-3


def test_a_layer_that_is_out_of_reach_is_refused():
    model = Net()
    model.cached = functools.lru_cache(model.up)
    model(X)
    with pytest.raises(
        ValueError, match="attribute 'cached' .* cannot|cannot .* 'cached'"
    ):
        ki.compact(model)


def test_a_copy_that_computes_something_else_is_refused():
    """Code that knows one object, and no other that has the same attributes."""
    first = []

    class Single(Net):
        def call(self, x):
            y = super().call(x)
            return y if first[:1] in ([], [self]) else 2 * y

    model = Single()
    model(X)
    first.append(model)
    prune_half(model)
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(model)
