"""A model answers as in evaluation while a method learns or measures in it.

In Keras `model(x)` is inference, and a model whose `call` takes no `training` is told
nothing, neither in its train step nor in its validation.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, set_random_weights, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps per epoch


class ToldNothing(keras.Model):
    """Its `call` takes no `training`."""

    def __init__(self):
        super().__init__()
        self.inner = residual_model()

    def call(self, x):
        return self.inner(x)

    def get_layer(self, name):
        return self.inner.get_layer(name)


class Asks(keras.callbacks.Callback):
    """In the middle of learning: answers, and what they leave behind."""

    def __init__(self, x):
        super().__init__()
        self.x, self.answers, self.learned = x, [], []

    def on_epoch_end(self, epoch, logs=None):
        model = self.model
        states = [ffn.state for ffn in ki.find_ffns(model)]
        probes = [state.probe for state in states if state.probe is not None]
        before = [to_numpy(v) for probe in probes for v in probe.variables]
        self.learned.append(before)
        if probes:
            predicted = model.predict(self.x, verbose=0)
            called = [to_numpy(model(self.x)) for _ in range(2)]
            self.answers.append((predicted, *called))
        after = [to_numpy(v) for probe in probes for v in probe.variables]
        for one, other in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, other)


def fitted(make, method, data, begin):
    model = make()
    model(data[0][:1])
    set_random_weights(model)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    prune = ki.IdeaPruneCallback(5, begin, 12, method=method, compact="off")
    asks = Asks(data[0])
    history = model.fit(
        *data, epochs=3, validation_data=data, callbacks=[asks, prune], **FIT
    )
    return model, asks, history.history


@pytest.mark.parametrize("method, begin", [("learned_mask", 2), ("activation", 20)])
def test_a_model_that_is_told_nothing_trains_and_answers_as_another(
    method, begin, data
):
    plain, plain_asks, expected = fitted(residual_model, method, data, begin)
    model, asks, found = fitted(ToldNothing, method, data, begin)
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)
    assert asks.answers and len(asks.answers) == len(plain_asks.answers)
    for predicted, *called in asks.answers + plain_asks.answers:
        for answer in called:
            np.testing.assert_allclose(answer, predicted, rtol=1e-5, atol=1e-5)
    for one, other in zip(asks.learned, plain_asks.learned, strict=True):
        for value, same in zip(one, other, strict=True):
            np.testing.assert_allclose(value, same, rtol=1e-4, atol=1e-5)
    for ffn, other in zip(ki.find_ffns(model), ki.find_ffns(plain), strict=True):
        np.testing.assert_array_equal(to_numpy(ffn.mask), to_numpy(other.mask))
        assert ffn.width == 5
    assert "train_step" not in vars(model)


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow",
    reason="Keras cannot rematerialize a whole functional model there",
)
@pytest.mark.parametrize("method, begin", [("learned_mask", 2), ("activation", 20)])
def test_a_model_rematerialized_as_a_whole_trains_and_answers_as_another(
    method, begin, data
):
    """On jax its `training` is then traced."""

    def rematerialized():
        with keras.RematScope(mode="full"):
            return residual_model()

    _, _, expected = fitted(residual_model, method, data, begin)
    _, asks, found = fitted(rematerialized, method, data, begin)
    for name in ("loss", "val_loss"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)
    for predicted, *called in asks.answers:
        for answer in called:
            np.testing.assert_allclose(answer, predicted, rtol=1e-5, atol=1e-5)


def look(model, x):
    """A gradient of what the model answers, taken by the way."""
    backend = keras.backend.backend()
    if backend == "torch":
        model(x).sum().backward()
        model.zero_grad()
    elif backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            answer = model(x)
        tape.gradient(answer, model.trainable_variables)
    else:
        import jax

        def answer(values):
            fixed = [v.value for v in model.non_trainable_variables]
            return model.stateless_call(values, fixed, x)[0].sum()

        jax.grad(answer)([v.value for v in model.trainable_variables])


@pytest.mark.parametrize("method, begin", [("learned_mask", 2), ("activation", 20)])
def test_a_gradient_taken_by_the_way_is_no_step(method, begin, data):
    x, y = data

    class Looks(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            look(self.model, x[:2])

    model = ToldNothing()
    model(x[:1])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    prune = ki.IdeaPruneCallback(5, begin, 12, method=method)
    model.fit(x, y, epochs=4, callbacks=[prune, Looks()], **FIT)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [5, 5]
