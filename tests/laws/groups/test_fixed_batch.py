"""Models whose code needs the real batch are followed."""

import keras
import pytest
from keras import layers, ops

import keras_idea as ki

BATCH, LENGTH, DIM, WIDTH = 16, 3, 4, 12


class Tokens(layers.Layer):
    """All tokens of the batch side by side, and apart again."""

    def call(self, x):
        flat = ops.reshape(x, (BATCH * LENGTH, DIM))
        return ops.reshape(flat, (-1, LENGTH, DIM))


def ffn():
    return [layers.Dense(WIDTH, "relu", name="up"), layers.Dense(2, name="down")]


def of_operations():
    inputs = keras.Input((LENGTH, DIM))
    flat = ops.reshape(inputs, (BATCH * LENGTH, DIM))
    up, down = ffn()
    return keras.Model(inputs, down(up(ops.reshape(flat, (-1, LENGTH, DIM)))))


@pytest.mark.daily("torch", "jax", "tensorflow")
def test_operations_of_a_graph_too():
    assert list(ki.explain(of_operations()).taken.values()) == [WIDTH]
