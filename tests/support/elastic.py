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


def gradients(up, down, x, y, width, teacher_weight=0.0):
    """The gradients of `classifier`'s loss at a width, as large as its weights.

    With a teacher the loss is (1 - w) * loss + w * KL(full || narrow).
    """
    hidden = np.maximum(x @ up[:, :width], 0.0)
    wrong = _softmax(hidden @ down[:width])
    targets = (1.0 - teacher_weight) * np.eye(3)[y]
    targets += teacher_weight * _softmax(np.maximum(x @ up, 0.0) @ down)
    wrong = (wrong - targets) / len(x)
    into = (wrong @ down[:width].T) * (hidden > 0)
    found = np.zeros_like(up), np.zeros_like(down)
    found[0][:, :width], found[1][:width] = x.T @ into, hidden.T @ wrong
    return found


class Adam:
    """Adam of Keras's defaults, on two arrays."""

    def __init__(self, rate):
        self.rate, self.count = rate, 0
        self.moments = [[0.0, 0.0], [0.0, 0.0]]

    def __call__(self, weights, found):
        """The weights after a step."""
        self.count += 1
        scale = np.sqrt(1 - 0.999**self.count) / (1 - 0.9**self.count)
        new = []
        for moments, weight, gradient in zip(self.moments, weights, found, strict=True):
            moments[0] = 0.9 * moments[0] + 0.1 * gradient
            moments[1] = 0.999 * moments[1] + 0.001 * gradient**2
            step = self.rate * scale * moments[0] / (np.sqrt(moments[1]) + 1e-7)
            new.append(weight - step)
        return new


class AdamW(Adam):
    """The same, after each weight was shrunk by rate * decay of it."""

    decay = 0.1

    def __call__(self, weights, found):
        """The weights after a step."""
        shrunk = [w - self.rate * self.decay * w for w in weights]
        return super().__call__(shrunk, found)


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
