"""What Keras's layers are known to do inside; each test names what has moved."""

import keras
import pytest

from keras_idea.keras_private.bare_copy import KEPT
from keras_idea.keras_private.layers import (
    sublayers,
    unlocked,
)


class Pair(keras.layers.Layer):
    """Two layers, of which the second is in a list."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = keras.layers.Dense(3, name="first")
        self.more = [keras.layers.Dense(2, name="second")]
        # No name of tensorflow's, though it begins so: KerasHub has such layers.
        self._self_attention = "additive"

    def build(self, input_shape):
        self.first.build(input_shape)
        self.more[0].build((*input_shape[:-1], 3))

    def call(self, x):
        return self.more[0](self.first(x))


def built_pair():
    pair = Pair()
    pair.build((1, 4))
    return pair


def test_tracker_can_be_unlocked():
    pair, late = built_pair(), keras.layers.Dense(1)
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.late = late
    unlocked(pair, setattr, "late", late)
    assert late in sublayers(pair)
    with pytest.raises(ValueError, match="cannot add new elements of state"):
        pair.later = keras.layers.Dense(1)


def test_each_attribute_that_keras_gives_a_layer_is_kept_or_made_anew():
    """Keras may come to give more: then somebody must say which it is."""
    made = {"name", "_dtype_policy", "_auto_config", "build", "quantize", "_lock"}
    made |= {"_inbound_nodes", "_outbound_nodes", "_losses", "_loss_ids", "_tracker"}
    made |= {"_losses_override", "_layers", "_metrics", "_seed_generators"}
    made |= {"_trainable_variables", "_non_trainable_variables"}
    # Of a backend's own class, of which Keras's is derived.
    made |= set(vars(keras.layers.Layer.__base__())) | {"_tracked"}
    left = set(vars(keras.layers.Layer())) - set(KEPT) - made
    assert {name for name in left if not name.startswith("_self_")} == set()
