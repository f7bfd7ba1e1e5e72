"""Tiny models for tests of several widths, and their steps by hand in float64."""

import keras
import numpy as np

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}
NEURONS = 16


def classifier(optimizer, cls=keras.Model, regularizer=None, dtype=None, **compiled):
    """4 features to 3 logits, through one FFN of 16 neurons, without a bias."""
    dense = keras.layers.Dense
    given = {"use_bias": False, "dtype": dtype, "kernel_regularizer": regularizer}
    inputs = keras.Input((4,))
    hidden = dense(NEURONS, "relu", name="up", **given)(inputs)
    model = cls(inputs, dense(3, name="down", **given)(hidden))
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **compiled)
    return model


def data(samples=32, seed=1):
    """Features and labels for `classifier`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, 4)).astype("float32")
    return x, rng.integers(0, 3, samples)


def gradients(up, down, x, y, width):
    """The gradients of `classifier`'s loss at a width, as large as its weights."""
    hidden = np.maximum(x @ up[:, :width], 0.0)
    wrong = (_softmax(hidden @ down[:width]) - np.eye(3)[y]) / len(x)
    into = (wrong @ down[:width].T) * (hidden > 0)
    found = np.zeros_like(up), np.zeros_like(down)
    found[0][:, :width], found[1][:width] = x.T @ into, hidden.T @ wrong
    return found


class SGD:
    """Gradient descent, on two arrays."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, weights, found):
        """The weights after a step."""
        return [w - self.rate * g for w, g in zip(weights, found, strict=True)]


def _softmax(logits):
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)
