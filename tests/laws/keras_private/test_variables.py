"""What Keras's variables and its generator do inside."""

import keras
import numpy as np

from keras_idea._keras.optimizer_variables import build_without_values
from keras_idea._keras.variables import global_seed, without_values
from tests.support.helpers import to_numpy


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
