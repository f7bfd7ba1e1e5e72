"""What users wrote that was once pruned wrongly, or refused with the wrong words."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea._graph.find import graph_of

WIDTH, TARGET = 16, 4


@pytest.fixture
def xy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype("float32")
    return x, np.tanh(x @ rng.normal(size=(8, 4))).astype("float32")


def fitted(model, xy, optimizer="adam", **options):
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(TARGET, 8, 8, **options)
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    return model.fit(*xy, epochs=4, callbacks=[prune], **fit)


class MeanSquare(keras.regularizers.Regularizer):
    def __call__(self, array):
        return mean_square(array)


def mean_square(array):
    return ops.mean(array**2)


class Looking(layers.Layer):
    """Returns None."""

    def call(self, x):
        self.seen = x.shape


class Looked(keras.Model):
    def __init__(self, at):
        super().__init__()
        self.at, self.up, self.down = (
            at,
            layers.Dense(WIDTH, name="up"),
            layers.Dense(4),
        )
        self.looking = Looking(name="looking")

    def call(self, x):
        hidden = self.up(x)
        made = self.down(hidden)
        self.looking({"neurons": hidden, "outputs": made}[self.at])
        return made


@pytest.mark.parametrize("at", ["neurons", "outputs"])
def test_a_layer_that_returns_none(at, xy):
    model = Looked(at)
    model(xy[0])
    fitted(model, xy)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [TARGET]


def test_an_operation_that_reads_the_kernel_of_a_convolution():
    inputs = keras.Input((6, 6, 2))
    one = layers.Conv2D(8, 3, use_bias=False, name="one")
    made = layers.Conv2D(3, 1)(one(inputs))
    other = ops.mean(ops.conv(inputs, one.kernel), -1, keepdims=True)
    explained = ki.explain(keras.Model(inputs, made + other))
    assert "Conv" in explained.left_out["one"]


SAMPLES = np.ones((6, 8), "float32")
NO_SAMPLES = {
    "a path": ("text.txt", "`data` must be samples"),
    "a function": (lambda: SAMPLES, "`data` must be samples"),
    "lists": (SAMPLES.tolist(), "`data` must be samples"),
    "nothing": ([], "hold no sample"),
    "not a number": (SAMPLES * np.nan, "finite"),
}


@pytest.mark.parametrize("data, match", NO_SAMPLES.values(), ids=NO_SAMPLES.keys())
def test_data_that_are_no_samples(data, match):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16), layers.Dense(4)])
    with pytest.raises(ki.KerasIdeaError, match=match):
        ki.shrink(model, {"neurons": 2}, data)
    model.compile("adam", "mse")
    method = ki.methods.Activation(data=data)
    prune = ki.IdeaPruneCallback(2, begin_step=0, prune_steps=1, method=method)
    with pytest.raises(ki.KerasIdeaError):
        model.fit(SAMPLES, SAMPLES[:, :4], verbose=0, callbacks=[prune])


def two_layers(between, activation="relu"):
    inputs = keras.Input((4, 6))
    hidden = keras.layers.Dense(8, activation, name="up")(inputs)
    read = keras.layers.Dense(6, name="down")
    return keras.Model(inputs, between(inputs, hidden, read))


@pytest.mark.parametrize(
    "between, reason",
    [
        (lambda x, h, down: (down(h), h), "is an output of the model"),
        (lambda x, h, down: down(ops.softmax(h)), "Softmax mixes it"),
        (lambda x, h, down: down(h / ops.sum(h, -1, keepdims=True)), "Sum|broadcasts"),
        (lambda x, h, down: down(h * np.arange(8.0)), "a number of its own"),
        (lambda x, h, down: down(h) + ops.mean(h), "Mean reduces it"),
    ],
)
def test_left_out(between, reason):
    found = graph_of(two_layers(between))
    assert not found.groups
    assert re.search(reason, found.left_out["up"])


def test_neurons_added_to_an_input_are_left_out():
    inputs = keras.Input((8,))
    hidden = inputs + keras.layers.Dense(8, name="up")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    reason = graph_of(model).left_out["up"]
    assert reason == "combined with: an input of the model"


def test_names_that_come_later_are_as_without_it():
    model = two_layers(lambda x, h, down: down(h), lambda h: ops.softmax(h))
    keras.layers.Softmax()  # so that the next one's name has a number
    before = int(keras.layers.Softmax().name.rpartition("_")[2])
    graph_of(model)
    assert keras.layers.Softmax().name == f"softmax_{before + 1}"
