"""What Keras's variables, its generator and a call under way do inside."""

import keras
import numpy as np

from keras_idea.keras_private.call_context import (
    current_pass,
    in_train_step,
    is_training,
    mask_of,
)
from keras_idea.keras_private.optimizer_variables import build_without_values
from keras_idea.keras_private.variables import global_seed, without_values
from tests.support.helpers import to_numpy


class Asking(keras.layers.Layer):
    """A layer that notes what is known inside of its call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.inside = []

    def call(self, x):
        self.inside.append((is_training(), current_pass(), mask_of(x)))
        return x


X = np.ones((2, 3), "float32")


def test_whether_a_forward_pass_trains():
    """As the outermost layer was told; told nothing, in a train step alone."""
    inner = Asking()
    model = keras.Sequential([keras.Input((3,)), inner])
    inner.inside.clear()
    model(X, training=True)
    model(X, training=False)
    model(X)
    in_train_step(model, X)
    in_train_step(model, X, training=False)
    model(X)
    found = [inside[0] for inside in inner.inside]
    assert found == [True, False, False, True, False, False]
    assert is_training()  # where no layer is being called, a backward pass may repeat


def test_mask_of_a_tensor_is_known():
    layer = Asking()
    masked = keras.layers.Masking()(np.array([[[1.0], [0.0]]], "float32"))
    layer(masked)
    np.testing.assert_array_equal(to_numpy(layer.inside[0][2]), [[True, False]])
    assert mask_of(keras.ops.ones(3)) is None


def test_an_optimizer_is_built_without_values():
    with without_values():
        bare = keras.layers.Dense(2)
        bare.build((1, 4))
    optimizer = keras.optimizers.AdamW(1e-3)
    build_without_values(optimizer, bare.trainable_variables)
    slots = [v for v in optimizer.variables if len(v.shape) == 2]
    assert [(tuple(v.shape), v._value) for v in slots] == 2 * [((4, 2), None)]


def test_global_seed_decides_what_is_drawn():
    keras.random.normal((2,))
    state = to_numpy(global_seed().value)
    first = to_numpy(keras.random.uniform((3,)))
    moved = to_numpy(global_seed().value)
    assert not np.array_equal(moved, state)
    if keras.backend.backend() != "torch":  # draws from torch's own, seeded by it
        global_seed().assign(state)
        np.testing.assert_array_equal(to_numpy(keras.random.uniform((3,))), first)
