"""Which neurons of a user's model are found, and why others are not."""

import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_idea.groups.dense import find_dense_groups


def two_layers(between, activation="relu"):
    inputs = keras.Input((4, 6))
    hidden = keras.layers.Dense(8, activation, name="up")(inputs)
    read = keras.layers.Dense(6, name="down")
    return keras.Model(inputs, between(inputs, hidden, read))


@pytest.mark.parametrize(
    "between, reason",
    [
        (lambda x, h, down: (down(h), h), "is an output of the model"),
        (lambda x, h, down: down(h[..., ::-1]), "operation GetItem"),
        (lambda x, h, down: down(ops.softmax(h)), "operation Softmax"),
        (lambda x, h, down: down(keras.layers.Activation("softmax")(h)), "softmax of"),
        (lambda x, h, down: down(keras.layers.Softmax()(h)), "Softmax"),
        (lambda x, h, down: down(h) + ops.matmul(h, down.kernel), "Matmul"),
        (lambda x, h, down: down(h / ops.sum(h, -1, keepdims=True)), "Sum|broadcasts"),
        (lambda x, h, down: down(h * np.arange(8.0)), "a number of its own"),
        (lambda x, h, down: down(h) + ops.mean(h), "operation Mean"),
        (lambda x, h, down: down(keras.layers.LayerNormalization()(h)), "LayerNorm"),
        (lambda x, h, down: down(keras.layers.Reshape((4, 8))(h)), "Reshape"),
    ],
)
def test_left_out(between, reason):
    found = find_dense_groups(two_layers(between))
    assert not found.groups
    assert re.search(reason, found.left_out["up"])


def test_neurons_added_to_an_input_are_left_out():
    inputs = keras.Input((8,))
    hidden = inputs + keras.layers.Dense(8, name="up")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    reason = find_dense_groups(model).left_out["up"]
    assert reason == "it is combined with an input of the model"


def test_names_that_come_later_are_as_without_it():
    model = two_layers(lambda x, h, down: down(h), lambda h: ops.softmax(h))
    keras.layers.Softmax()  # so that the next one's name has a number
    before = int(keras.layers.Softmax().name.rpartition("_")[2])
    find_dense_groups(model)
    assert keras.layers.Softmax().name == f"softmax_{before + 1}"
