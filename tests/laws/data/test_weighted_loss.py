"""Weights of tokens in the loss: of `fit`, of a teacher, of the bits, against NumPy."""

import keras
import numpy as np
import pytest

from keras_idea.distillation import FloatLogits, WeightedDistiller
from keras_idea.lm.runs.compiling import cross_entropy
from keras_idea.lm.runs.fitting import LossUnits

B, T, V, H = 4, 6, 11, 5
RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, V, (2, B, T)).astype("int32")
WEIGHTS = (RNG.random((B, T)) < 0.4).astype("float32")
SHARE, TEMPERATURE = 0.25, 2.0


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


def test_the_bits_are_those_of_the_counted_tokens():
    made = model(0)
    nats, sizes = nats_of(arrays(made)[1]), np.arange(V) + 1.0
    loss = made.evaluate(X, Y, sample_weight=WEIGHTS, batch_size=2, verbose=0)
    counts = WEIGHTS > 0
    units = LossUnits(
        validation=sizes[Y[counts]].mean(), validation_counted=counts.mean()
    )
    expected = nats[counts].sum() / sizes[Y[counts]].sum() / np.log(2)
    found = units.of_validation(loss)
    assert found == pytest.approx(expected, rel=1e-5)
    assert units.perplexity(found) == pytest.approx(np.exp(nats[counts].mean()))
    assert units.perplexity(1e6) == np.inf  # of a model that has diverged


def distiller(top_k=None):
    student, teacher = model(0), model(1)
    made = WeightedDistiller(
        teacher,
        student,
        FloatLogits(TEMPERATURE, top_k),
        student_loss_weight=SHARE,
    )
    made.compile(optimizer=student.optimizer, loss=cross_entropy())
    return made


@pytest.mark.parametrize("top_k", [None, 3])
def test_a_teacher_is_followed_on_the_weighted_tokens(top_k):
    made = distiller(top_k)
    _, known, _ = arrays(made.teacher)
    _, own, _ = arrays(made.student)
    nats = (WEIGHTS * nats_of(own)).sum() / (B * T)
    places = np.argsort(-known, axis=-1, kind="stable")[..., :top_k]
    known, own = (np.take_along_axis(a, places, -1) for a in (known, own))
    p, q = softmax(known / TEMPERATURE), softmax(own / TEMPERATURE)
    divergence = (WEIGHTS * (p * np.log(p / q)).sum(-1)).sum() / (B * T)
    logs = one_step(made)
    total = SHARE * nats + (1 - SHARE) * TEMPERATURE**2 * divergence
    assert logs["student_loss"] == pytest.approx(nats, rel=1e-5)
    assert logs["loss"] == pytest.approx(total, rel=1e-4)
    # Validation takes the weights too.
    found = distiller(top_k).evaluate(
        X, Y, sample_weight=WEIGHTS, verbose=0, return_dict=True
    )
    assert found["student_loss"] == pytest.approx(nats, rel=1e-5)


def test_weights_of_one_are_no_weights():
    ones = one_step(distiller(), np.ones((B, T), "float32"))
    made = distiller()
    plain = keras.Model.fit(made, X, Y, batch_size=B, verbose=0).history
    for name in ("loss", "student_loss", "distillation_loss"):
        assert ones[name] == pytest.approx(plain[name][0], rel=1e-5)


def test_what_has_no_weight_does_not_train():
    """Another teacher and other targets where the weight is 0: the same weights."""
    first, second = distiller(), distiller()
    one_step(first)
    targets = np.where(WEIGHTS > 0, Y, (Y + 1) % V)
    keras.Model.fit(second, X, targets, sample_weight=WEIGHTS, batch_size=B, verbose=0)
    np.testing.assert_allclose(
        arrays(first.student)[2], arrays(second.student)[2], rtol=1e-6
    )
