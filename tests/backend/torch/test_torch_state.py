"""What only torch has: modules of its own, and parameters that it knows by path."""

import keras
import numpy as np
import pytest
import torch

import keras_idea as ki

X = np.random.default_rng(0).normal(size=(32, 6)).astype("float32")


class Hidden:
    """A plain object, into which Keras does not look."""

    def __init__(self):
        device = keras.ops.zeros(()).device
        self.linear = torch.nn.Linear(6, 6, device=device)


def test_a_copy_without_state_that_keras_does_not_know_is_refused():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = Hidden()
            self.up, self.down = keras.layers.Dense(8, "relu"), keras.layers.Dense(6)

        def call(self, x):
            return self.down(self.up(self.hidden.linear(x)))

    model = Net()
    model(X)
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(model)


class Block(keras.layers.Layer):
    def __init__(self, name):
        super().__init__(name=name)
        seeded = keras.initializers.GlorotUniform
        self.up = keras.layers.Dense(8, "gelu", kernel_initializer=seeded(1), name="up")
        self.down = keras.layers.Dense(6, kernel_initializer=seeded(2), name="down")

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, 8))

    def call(self, x):
        return x + self.down(self.up(x))


class Pair(keras.layers.Layer):
    """Two blocks, as the two encoders of KerasHub's CLIP, which may have one name."""

    def __init__(self, names):
        super().__init__(name="pair")
        self.blocks = [Block(name) for name in names]

    def build(self, shape):
        for block in self.blocks:
            block.build(shape)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def trained(names):
    inputs = keras.Input((6,))
    head = keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotUniform(3))
    model = keras.Model(inputs, head(Pair(names)(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=3)
    fit = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
    model.fit(X, X[:, :3], callbacks=[prune], **fit)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]
    return [keras.ops.convert_to_numpy(v) for v in model.variables]


def test_blocks_with_one_path_train_as_blocks_with_two():
    """Keras alone keeps one parameter a path, and adds up the others' gradients."""
    for same, other in zip(trained("aa"), trained("ab"), strict=True):
        np.testing.assert_array_equal(same, other)
