"""A step at a width is the step of the model that is so narrow."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import elastic as reference
from tests.support.elastic import FIT, classifier, data
from tests.support.helpers import to_numpy

WIDTHS = {"small": 4, "medium": 8}
EACH = pytest.mark.daily("torch", "jax", "tensorflow")


def arrays(variables):
    return [to_numpy(v).astype("float64") for v in variables]


def by_hand(optimizer, x, y, widths):
    """The weights of `classifier` after steps at these widths, in float64."""
    weights = arrays(classifier("sgd").trainable_variables)
    for step, width in enumerate(widths):
        rows = slice(8 * step, 8 * step + 8)
        found = reference.gradients(*weights, x[rows], y[rows], width)
        weights = optimizer(weights, found)
    return weights


TURN = [16, 4, 8, 16]


@EACH
def test_two_widths_by_hand():
    x, y = data()
    model = classifier(keras.optimizers.SGD(0.05))
    model.fit(x, y, callbacks=[ki.ElasticCallback(WIDTHS)], **FIT)
    expected = by_hand(reference.SGD(0.05), x.astype("float64"), y, TURN)
    for got, want in zip(arrays(model.trainable_variables), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


_O = keras.optimizers
WAYS = {
    "adamw, clipped": lambda: classifier(_O.AdamW(0.05, global_clipnorm=0.1)),
    "mixed_float16": lambda: classifier(_O.Adam(0.05), dtype="mixed_float16"),
    "averages": lambda: classifier(_O.SGD(0.05, momentum=0.9, use_ema=True)),
    "accumulation": lambda: classifier(_O.Adam(0.05, gradient_accumulation_steps=2)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_the_sliced_models(way):
    """Two epochs at one width, after one at full width, equal those of the narrow."""
    x, y = data()
    model = WAYS[way]()
    model.fit(x, y, **FIT)
    # Keras on jax lets weights share their averages' arrays, and cannot fit them again.
    model.set_weights(model.get_weights())
    narrow = ki.sliced(model, 4)
    one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
    model.fit(x, y, epochs=2, callbacks=[one], **FIT)
    narrow.fit(x, y, epochs=2, **FIT)
    after = ki.sliced(model, 4)
    pairs = [(narrow.variables, after.variables)]
    pairs.append((narrow.optimizer.variables, after.optimizer.variables))
    for expected, received in pairs:
        for want, got in zip(arrays(expected), arrays(received), strict=True):
            np.testing.assert_allclose(got, want, atol=3e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_other_neurons_do_what_the_optimizer_does_to_zeros(decay):
    """Their gradients are zeros: they stay, or weight decay shrinks them."""
    x, y = data()
    optimizer = keras.optimizers.SGD(0.5, weight_decay=decay or None)
    model = classifier(optimizer, regularizer="l2")
    up, down = arrays(model.trainable_variables)
    one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
    model.fit(x, y, callbacks=[one], **FIT)
    after_up, after_down = arrays(model.trainable_variables)
    shrunk = (1 - 0.5 * decay) ** 4
    np.testing.assert_allclose(after_up[:, 4:], shrunk * up[:, 4:], rtol=1e-5 * decay)
    np.testing.assert_allclose(after_down[4:], shrunk * down[4:], rtol=1e-5 * decay)
    assert (after_up[:, :4] != up[:, :4]).any()


def test_after_an_exception_a_fit_is_plain():
    x, y = data()
    plain, model = (classifier(keras.optimizers.SGD(0.05)) for _ in range(2))

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model.fit(x, y, callbacks=[ki.ElasticCallback(WIDTHS), Fails()], **FIT)
    plain.set_weights(model.get_weights())
    plain.fit(x, y, **FIT)
    model.fit(x, y, **FIT)
    for want, got in zip(arrays(plain.variables), arrays(model.variables), strict=True):
        np.testing.assert_array_equal(got, want)
    assert "compute_loss" not in vars(model) and "call" not in vars(model.layers[1])
