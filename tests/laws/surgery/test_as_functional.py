"""`as_functional`: one graph of Keras's layers that computes the same."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.conv_nets import drawn, of
from tests.support.conv_nets_trained import called_twice, head_on
from tests.support.helpers import to_numpy


class Mixed(layers.Layer):
    """Two convolutions of one name, a number of its own, an argument, a list."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [layers.Conv2D(4, 3, padding="same", name="c") for _ in range(2)]
        self.norm = layers.BatchNormalization()

    def call(self, x, training=None):
        y = keras.ops.relu(self.parts[0](x))
        y = self.norm(self.parts[1](y), training=training)
        return layers.Concatenate()([x, 2.0 * y]) / 3.0


@keras.saving.register_keras_serializable("as_functional_tests")
class Scaled(layers.Layer):
    """Weights of its own."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale


class Own(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Mixed(), Mixed()]
        self.out = layers.Dense(2)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(keras.ops.mean(x, (1, 2)))


def own():
    model = Own()
    model(np.zeros((1, 5, 5, 2), "float32"))
    return model


def named_outputs():
    inputs = {"a": keras.Input((3,), name="a"), "b": keras.Input((3,), name="b")}
    x = keras.Sequential([layers.Dense(4, "relu"), layers.Dense(3)])(inputs["b"])
    return keras.Model(inputs, {"sum": x + inputs["a"], "twice": 2 * x})


MODELS = {
    "of one's own": own,
    "nested": lambda: head_on(None),
    "called twice": called_twice,
    "named": named_outputs,
    "weights of its own": lambda: of((5, 5, 2), Mixed(), Scaled(), layers.Conv2D(2, 1)),
}


def inputs_of(model, count=3):
    rng = np.random.default_rng(0)

    def array(tensor):
        shape = [5 if size is None else size for size in tensor.shape[1:]]
        return rng.normal(size=(count, *shape)).astype("float32")

    if getattr(model, "input", None) is None:
        return array(keras.KerasTensor((None, 5, 5, 2)))
    given = keras.tree.map_structure(array, model.input)
    return given


@pytest.mark.parametrize("name", MODELS)
def test_computes_the_same(name, tmp_path):
    model = drawn(MODELS[name]())
    before = [to_numpy(v) for v in model.variables]
    copy = ki.as_functional(model)
    x = inputs_of(model)
    for training in (False, True):
        some, others = (m(x, training=training) for m in (copy, model))
        keras.tree.map_structure(
            lambda a, b: np.testing.assert_allclose(
                to_numpy(a), to_numpy(b), rtol=1e-5, atol=1e-6
            ),
            some,
            others,
        )
    assert not any(isinstance(layer, (keras.Model, Mixed)) for layer in copy.layers)
    assert copy.count_params() == model.count_params()
    for variable in copy.trainable_variables:
        variable.assign(0 * variable.value)
    trained = {id(v) for v in model.trainable_variables}
    for value, variable in zip(before, model.variables, strict=True):
        if id(variable) in trained:
            np.testing.assert_array_equal(value, to_numpy(variable))
    copy.save(tmp_path / "copy.keras")
    keras.models.load_model(tmp_path / "copy.keras")


class Padded(keras.Model):
    """Hands the mask of its embedding on itself, over an operation."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(20, 8, mask_zero=True)
        self.up, self.pool = layers.Dense(8, "gelu"), layers.GlobalAveragePooling1D()

    def call(self, ids):
        x = self.embedding(ids)
        return self.pool(x + self.up(x), mask=keras.ops.not_equal(ids, 0))


def test_masks_are_handed_on():
    model, ids = Padded(), np.array([[3, 4, 5, 6], [7, 8, 0, 0]])
    expected = to_numpy(model(ids))
    found = to_numpy(ki.as_functional(model)(ids))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


class Penalized(layers.Layer):
    def call(self, x):
        self.add_loss(keras.ops.mean(x))


def penalized():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4)])
    block = keras.Sequential([model, WithPenalty()])
    block.build((None, 3))
    return block


class WithPenalty(layers.Layer):
    """Holds a layer that returns None."""

    def __init__(self):
        super().__init__()
        self.penalized = Penalized()

    def call(self, x):
        self.penalized(x)
        return x + 1.0


class Numbered(layers.Layer):
    def call(self, x):
        # Keras on TensorFlow says None of an open size, so nobody can compute with it.
        height, width = (size or 1 for size in x.shape[1:3])
        return keras.ops.reshape(x, (-1, height * width, 2))


class Strange(layers.Layer):
    """Its config cannot hold a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.scale = self.add_weight(shape=(2,), initializer="ones")

    def call(self, x):
        return self.function(x) * self.scale


@keras.saving.register_keras_serializable("as_functional_tests")
class Reads(layers.Layer):
    """Computes with its Dense layer's kernel too, or otherwise while it trains."""

    def __init__(self, how, dense=None, **kwargs):
        super().__init__(**kwargs)
        self.how, self.dense = how, dense or layers.Dense(3)

    def build(self, shape):
        if not self.dense.built:
            self.dense.build(shape)

    def call(self, x, training=False):
        if self.how == "kernel":
            return self.dense(x) + keras.ops.matmul(x, self.dense.kernel)
        if training and self.how == "loss":
            self.add_loss(keras.ops.mean(x))
        return self.dense(x) * (2.0 if training and self.how == "factor" else 1.0)

    def get_config(self):
        return {**super().get_config(), "how": self.how}


def reads(how):
    return keras.Sequential([keras.Input((3,)), layers.Dense(3), Reads(how)])


def shared():
    """Two blocks that would each have a copy of one layer."""
    inputs, dense = keras.Input((3,)), layers.Dense(3)
    one, two = Reads("kernel", dense), Reads("kernel", dense)
    return keras.Model(inputs, one(inputs) + two(inputs))


@pytest.mark.parametrize("how", ["kernel", "loss"])
def test_what_cannot_be_taken_apart_stays_one_layer(how):
    model = reads(how)
    copy = ki.as_functional(model)
    assert "Reads" in {type(layer).__name__ for layer in copy.layers}
    x = np.ones((2, 3), "float32")
    expected = to_numpy(copy(x))
    for variable in model.variables:
        variable.assign(0 * variable.value)
    np.testing.assert_array_equal(to_numpy(copy(x)), expected)
    assert np.abs(expected).max() > 0


REFUSED = {
    "an open size": (
        lambda: of((None, None, 2), Numbered(), layers.Conv1D(2, 1)),
        "compute with an open size",
    ),
    "no config": (
        lambda: of((5, 5, 2), Strange(lambda x: x + 1), layers.Conv2D(2, 1)),
        "Strange 'strange' cannot be copied",
    ),
    "a loss": (penalized, "cannot be made functional"),
    "a factor in training": (lambda: reads("factor"), "computes something else"),
    "a layer of two blocks": (shared, "is in 2 of its blocks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason):
        ki.as_functional(make())


class Reshaped(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.shape = layers.Dense(6), layers.Reshape((2, 3))

    def call(self, x):
        return self.shape(self.dense(x))


def test_a_reshape_in_a_block_is_a_layer():
    model = keras.Sequential([keras.Input((4,)), Reshaped()])
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    made = ki.as_functional(model)
    np.testing.assert_array_equal(to_numpy(made(x)), to_numpy(model(x)))
