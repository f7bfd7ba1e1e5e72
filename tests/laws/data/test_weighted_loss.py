"""Weights of tokens in the loss of `fit`, against NumPy."""

import keras
import numpy as np
import pytest

from keras_idea._lm.runs.compiling import cross_entropy

B, T, V, H = 4, 6, 11, 5
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, V, (2, B, T)).astype("int32")
WEIGHTS = (RNG.random((B, T)) < 0.4).astype("float32")


def model(seed):
    """Logits of each token alone; compiled with plain steps of size 1."""
    keras.utils.set_random_seed(seed)
    made = keras.Sequential(
        [
            keras.Input((T,), dtype="int32"),
            keras.layers.Embedding(V, H, embeddings_initializer="normal"),
            keras.layers.Dense(V, kernel_initializer="normal"),
        ]
    )
    made.layers[0].trainable = False
    made.compile(keras.optimizers.SGD(1.0), cross_entropy(), weighted_metrics=None)
    return made


def softmax(logits):
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def arrays(made):
    (table,), (kernel, bias) = (layer.get_weights() for layer in made.layers)
    h = table.astype("float64")[X]
    return h, h @ kernel.astype("float64") + bias, kernel.astype("float64")


def nats_of(logits):
    return -np.log(np.take_along_axis(softmax(logits), Y[..., None], -1))[..., 0]


def one_step(fitted, weights=WEIGHTS):
    def batches():
        while True:
            yield X, Y, weights

    history = keras.Model.fit(
        fitted, batches(), steps_per_epoch=1, shuffle=False, verbose=0
    )
    return {name: values[0] for name, values in history.history.items()}


def test_fit_sums_the_weighted_nats_over_all_tokens():
    made = model(0)
    h, logits, kernel = arrays(made)
    logs = one_step(made)
    assert logs["loss"] == pytest.approx((WEIGHTS * nats_of(logits)).sum() / (B * T))
    # The gradient is that of this sum: a step of size 1 takes it off the kernel.
    slope = softmax(logits) - np.eye(V)[Y]
    slope *= WEIGHTS[..., None] / (B * T)
    expected = kernel - np.einsum("bth,btv->hv", h, slope)
    np.testing.assert_allclose(arrays(made)[2], expected, rtol=1e-5, atol=1e-6)
