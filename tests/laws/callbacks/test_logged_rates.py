"""What the logs say of learning rate and width, against what the optimizer used.

A rate is told as it was, whoever sets it and when, or it is left out.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.events import Events
from tests.support.helpers import residual_model, sequential_model, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}
BACKEND = keras.backend.backend()
SCHEDULE = ki.CosineDecay(0.02, 1e-3, 24, 2)


def rate_of(update):
    """The rate that the callbacks below set for an update of the optimizer."""
    return 0.1 / (1 + update)


class Sets(keras.callbacks.Callback):
    """Sets the rate of each batch, before it or at the end of the one before."""

    def __init__(self, hook):
        super().__init__()
        self.updates = 0
        setattr(self, hook, self._set)

    def _set(self, batch, logs=None):
        self.model.optimizer.learning_rate = rate_of(self.updates)
        self.updates += 1


class Told(keras.callbacks.Callback):
    """The rate and width that the logs of each batch hold, None where they do not."""

    def on_train_begin(self, logs=None):
        self.rates, self.widths = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(logs.get("learning_rate"))
        self.widths.append(logs.get("width"))


def fitted(callbacks, data, optimizer=0.5, cls=keras.Model, epochs=3, reader=True):
    """`Told`, which may be left out, the history and the model."""
    model = residual_model((16,))
    if cls is not keras.Model:
        model = cls(model.inputs, model.outputs)
    if isinstance(optimizer, float):
        optimizer = keras.optimizers.SGD(optimizer)
    model.compile(optimizer, "mse")
    told = Told()
    callbacks = [*callbacks, *([told] if reader else [])]
    history = model.fit(*data, epochs=epochs, callbacks=callbacks, **FIT)
    return told, history.history, model


def prune(**arguments):
    return ki.IdeaPruneCallback(4, 2, 6, **arguments)


@pytest.mark.parametrize("compact", ["end", "off"])
def test_a_rate_set_before_each_batch_is_told(compact, data):
    told, history, _ = fitted(
        [Sets("on_train_batch_begin"), prune(compact=compact)], data
    )
    used = [rate_of(update) for update in range(24)]
    np.testing.assert_allclose(told.rates, used, rtol=1e-6)
    np.testing.assert_allclose(history["learning_rate"], used[7::8], rtol=1e-6)


def test_a_rate_that_a_later_callback_sets_is_left_out_of_the_batches(data):
    """And of the epochs, if somebody's code runs at the end of a batch too."""
    told, history, _ = fitted([prune(), Sets("on_train_batch_begin")], data)
    assert told.rates == [None] * 24 and None not in told.widths
    assert "learning_rate" not in history and "width" in history
    callbacks = [prune(), Sets("on_train_batch_begin")]
    _, history, _ = fitted(callbacks, data, reader=False)
    used = [rate_of(update) for update in (7, 15, 23)]
    np.testing.assert_allclose(history["learning_rate"], used, rtol=1e-6)


class Twice(keras.Model):
    """Its train step takes two steps of the optimizer."""

    def train_step(self, *args):
        if BACKEND == "jax":
            state, data = args
            _, state = super().train_step(state, data)
            return super().train_step(state, data)
        (data,) = args
        super().train_step(data)
        return super().train_step(data)


@pytest.mark.parametrize("rate", [SCHEDULE, 0.01], ids=["schedule", "number"])
def test_two_steps_in_a_batch_are_told_by_the_epoch_alone(rate, data):
    """Its batches do not tell the width; nor does the pruner rest by their count."""
    callback = ki.IdeaPruneCallback(4, 38, 8, compact="off")
    optimizer = keras.optimizers.SGD(rate)
    told, history, model = fitted([callback], data, optimizer, Twice)
    assert told.widths == told.rates == [None] * 24
    schedule = ki.CubicWidth(16, 4, 38, 8)
    assert history["width"] == [schedule(16), schedule(32), schedule(48)] == [16, 16, 4]
    used = [float(rate(u)) if callable(rate) else rate for u in (15, 31, 47)]
    np.testing.assert_allclose(history["learning_rate"], used, rtol=1e-6)


def test_two_steps_in_a_batch_prune_as_two_batches_do(data):
    """Step by step the same masks: the scores are kept when they are due."""
    x, y = (array[:32] for array in data)
    masks = []
    for cls, epochs, repeat in ((Twice, 6, 1), (keras.Model, 6, 2)):
        model = residual_model((16,))
        model = cls(model.inputs, model.outputs)
        rng = np.random.default_rng(3)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(size=variable.shape, scale=0.3))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        rows = np.repeat(np.arange(32).reshape(4, 8), repeat, axis=0).ravel()
        callback = ki.IdeaPruneCallback(4, 36, 10, compact="off")
        model.fit(x[rows], y[rows], epochs=epochs, callbacks=[callback], **FIT)
        masks.append(to_numpy(ki.find_ffns(model)[0].mask))
    np.testing.assert_array_equal(*masks)
