"""Neurons that something else sees or computes with: they stay."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki

WIDTH, TARGET = 16, 4


@pytest.fixture
def xy():
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    return x, x[:, :3]


def fitted(model, xy, prune, **compiled):
    model.compile("adam", "mse", **compiled)
    fit = {"batch_size": 8, "shuffle": False, "verbose": 0}
    return model.fit(*xy, epochs=4, callbacks=[prune], **fit)


class Transposed(keras.layers.Layer):
    """Multiplies by another layer's kernel, the other way round."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def build(self, shape):
        pass

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.dense.kernel))


def transposed():
    inputs, tied = keras.Input((8,)), layers.Dense(WIDTH)
    hidden = tied(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, layers.Dense(3)(Transposed(tied)(hidden)))


def normed(first, second):
    return keras.Sequential([keras.Input((8,)), first, second])


def spectral(*arguments):
    return layers.SpectralNormalization(layers.Dense(*arguments))


@pytest.mark.parametrize(
    "make",
    [
        transposed,
        lambda: normed(spectral(WIDTH, "relu"), layers.Dense(3)),
        lambda: normed(layers.Dense(WIDTH, "relu"), spectral(3)),
    ],
    ids=["transposed", "normed", "normed reader"],
)
def test_a_kernel_that_a_layer_computes_with_is_left_out(make):
    explained = ki.explain(make())
    assert not explained.taken
    assert "a layer computes with its kernel" in explained.left_out.values()


def chained(*between):
    x = inputs = keras.Input((8,))
    for layer in (layers.Dense(WIDTH, "relu"), *between, layers.Dense(3)):
        x = layer(x)
    return keras.Model(inputs, x)


def twice():
    square = layers.Dense(WIDTH, "relu")
    return chained(square, square)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (twice, "a layer reads the neurons that it makes"),
        (
            lambda: chained(layers.Dropout(0.1, noise_shape=(None, WIDTH))),
            "'dropout' has a noise_shape with the number of channels",
        ),
    ],
    ids=["twice", "dropout"],
)
def test_what_has_a_neurons_number_in_it_is_left_out(make, why):
    explained = ki.explain(make())
    assert not explained.taken and why in explained.left_out.values()


def test_a_layer_that_a_distiller_compares_is_left_out():
    def student():
        hidden = layers.Dense(WIDTH, "relu", name="hidden")
        return keras.Sequential([keras.Input((8,)), hidden, layers.Dense(3)])

    loss = keras.distillation.FeatureDistillation(
        "mse", teacher_layer_name="hidden", student_layer_name="hidden"
    )
    distiller = keras.distillation.Distiller(student(), student(), loss)
    (why,) = [w for path, w in ki.explain(distiller).left_out.items() if "hid" in path]
    assert why == "a loss of the Distiller reads it"


def test_a_layer_with_two_parents_is_one(xy):
    dense = [layers.Dense(WIDTH, "tanh"), layers.Dense(8)]
    encoder = keras.Sequential([keras.Input((8,)), *dense])
    inputs = keras.Input((8,))
    decoder = keras.Model(inputs, layers.Dense(3)(encoder(inputs)))
    model = keras.Model(inputs, decoder(inputs))
    model.encoder = encoder
    fitted(model, xy, ki.IdeaPruneCallback(0.25, 8, 8))
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 2]


class OwnKernels(layers.Layer):
    """An FFN of the user's own weights, the kernel written first: it is called on x."""

    def build(self, shape):
        self.up = self.add_weight((shape[-1], WIDTH), name="up")
        self.down = self.add_weight((WIDTH, shape[-1]), name="down")

    def call(self, x):
        hidden = ops.relu(ops.einsum("df,btd->btf", self.up, x))
        return ops.einsum("fd,btf->btd", self.down, hidden)


@pytest.mark.parametrize("kind", ["own kernels", "flattened"])
def test_units_that_no_layer_is_called_on_one_by_one_are_not_measured(kind):
    """As wide as the units are: something else would have been ranked."""
    inputs = keras.Input((4, WIDTH))
    between = [OwnKernels()] if kind == "own kernels" else []
    between += [layers.Dense(WIDTH, "relu"), layers.Flatten()] if not between else []
    x = inputs
    for layer in (*between, layers.Dense(3)):
        x = layer(x)
    model = keras.Model(inputs, x)
    data = np.ones((8, 4, WIDTH), "float32")
    with pytest.raises(ki.KerasIdeaError, match="cannot be measured"):
        ki.shrink(model, {"neurons": 0.5}, data)
    small = ki.shrink(model, {"neurons": 0.5}, method="magnitude")
    assert [ffn.hidden_dim for ffn in ki.find_ffns(small)] == [WIDTH // 2]
