"""Small models and recorders that several tests use."""

import shutil

import keras
import numpy as np

import keras_idea as ki
from tests.support.dense_ffns import dense_gated


def fill(disk, leave):
    """Leaves so many bytes free on a disk; returns the file that takes the others."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - leave))
    return ballast


def to_numpy(value):
    """A NumPy array of its own (on jax a view dies with the next step)."""
    return np.array(keras.ops.convert_to_numpy(value))


def residual_model(
    hidden_dims=(16, 12), head=True, ffn=ki.PrunableGatedFFN, **ffn_arguments
):
    """Functional: `x + ffn(x)` for each width, then a linear head."""
    inputs = keras.Input((5, 8))
    x = inputs
    for index, hidden_dim in enumerate(hidden_dims):
        x = x + ffn(hidden_dim, name=f"ffn_{index}", **ffn_arguments)(x)
    if head:
        x = keras.layers.Dense(1, use_bias=False, name="head")(x)
    return keras.Model(inputs, x)


def set_random_weights(model):
    """Gives a residual model the same weights on every backend."""
    rng = np.random.default_rng(1)
    for ffn in ki.find_ffns(model):
        for kernel in ffn.kernels:
            kernel.assign(rng.normal(size=kernel.shape, scale=0.3))
    head = model.get_layer("head").kernel
    head.assign(rng.normal(size=head.shape, scale=0.3))


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Block(keras.layers.Layer):
    """A block that makes its FFN itself, as a user's code does."""

    def __init__(self, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.norm = keras.layers.LayerNormalization()
        self.ffn = ki.PrunableGatedFFN(hidden_dim, use_bias=True)

    def call(self, x):
        return x + self.ffn(self.norm(x))

    def get_config(self):
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Subclassed(keras.Model):
    """FFNs in an attribute, in a list, in a dict of lists and in nested blocks."""

    def __init__(self, hidden_dim=16, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self._first = ki.PrunableGatedFFN(hidden_dim)
        self.middle = [ki.PrunableGatedFFN(hidden_dim), Block(hidden_dim)]
        self.named = {"last": [Block(hidden_dim), keras.layers.Dense(8)]}
        self.head = keras.layers.Dense(1)

    def call(self, x):
        for layer in [self._first, *self.middle, *self.named["last"], self.head]:
            x = layer(x)
        return x

    def get_config(self):
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


def nested_model():
    """A functional model in a Sequential one, beside a block."""
    inner = residual_model((16,), head=False)
    return keras.Sequential(
        [keras.Input((5, 8)), inner, Block(16), keras.layers.Dense(1)]
    )


def sequential_model():
    """Sequential, without an Input: built by its first call."""
    return keras.Sequential([ki.PrunableGatedFFN(16), keras.layers.Dense(1)])


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Mixed(keras.Model):
    """Whole models as attributes, and one layer held by two attributes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.net = keras.Sequential([ki.PrunableGatedFFN(16), keras.layers.Dense(8)])
        self.graph = residual_model((12,), head=False)
        self.ffn = ki.PrunableGatedFFN(16)
        self.all = [self.ffn, keras.layers.Dense(1)]

    def call(self, x):
        x = self.graph(self.net(x))
        for layer in self.all:
            x = layer(x)
        return x


def stock_model(hidden_dims=(16, 12)):
    """Of Keras's layers alone."""
    return residual_model(hidden_dims, ffn=dense_gated, use_bias=True)


MODELS = {
    "functional": residual_model,
    "stock": stock_model,
    "sequential": sequential_model,
    "subclassed": Subclassed,
    "nested": nested_model,
    "mixed": Mixed,
}


class LossRecorder(keras.callbacks.Callback):
    """The loss of every single batch (Keras's logs hold the epoch's mean)."""

    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        before = sum(self._epoch)
        self._epoch.append(logs["loss"] * (batch + 1) - before)
        self.losses.append(self._epoch[-1])

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = []


def start_pruning(model, target, begin, steps, **kwargs):
    """Sets the callback to work as a loop of one's own does; nothing is narrowed."""
    prune = ki.IdeaPruneCallback(target, begin, steps, compact="off", **kwargs)
    prune.set_model(model)
    prune.on_train_begin()
    return prune
