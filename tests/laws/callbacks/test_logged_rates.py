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


def test_a_rate_set_at_the_end_of_each_batch_is_that_of_the_next(data):
    told, history, _ = fitted([prune(), Sets("on_train_batch_end")], data)
    used = [0.5, *[rate_of(update) for update in range(23)]]
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


class Timer(keras.callbacks.Callback):
    """Reads no rate and sets none."""

    def on_train_batch_begin(self, batch, logs=None):
        pass


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_epoch_end"])
@pytest.mark.parametrize("rate", ["set", "constant"])
def test_a_rate_that_may_be_that_of_the_next_epoch_is_left_out(hook, rate, data):
    """A later callback may set it before a batch, an earlier one after it."""
    sets = Sets(hook)
    if rate == "constant":
        setattr(sets, hook, lambda *arguments, **named: None)
    _, history, _ = fitted([sets, prune(), Timer()], data)
    if rate == "set":
        assert "learning_rate" not in history
    else:
        assert history["learning_rate"] == [0.5] * 3


def test_a_later_callback_is_seen_where_fit_builds_the_model(data):
    """On tensorflow the callback begins after the others have begun the batch."""
    model = sequential_model()
    model.compile(keras.optimizers.SGD(0.5), "mse")
    told = Told()
    callbacks = [prune(), Sets("on_train_batch_begin"), told]
    model.fit(*data, epochs=3, callbacks=callbacks, **FIT)
    assert told.rates == [None] * 24


@pytest.mark.parametrize("hook", ["on_train_batch_begin", "on_train_batch_end"])
def test_a_rate_that_keras_loses_is_not_told(hook, data):
    """On jax what is assigned behind `callback.model` in the midst of an epoch is.

    The gradient of `shift` is 1, so that it falls by the rates that were used.
    """
    inputs = keras.Input((5, 8))
    shift = Shift()
    outputs = keras.layers.Dense(1)(inputs + ki.PrunableGatedFFN(16)(inputs))
    model = keras.Model(inputs, shift(outputs))
    optimizer = keras.optimizers.SGD(1e-3)
    model.compile(optimizer, "mse")

    class Direct(Sets):
        def _set(self, batch, logs=None):
            optimizer.learning_rate.assign(rate_of(self.updates) / 100)
            self.updates += 1

    told = Told()
    callbacks = [Direct(hook), prune(compact="off"), told]
    model.fit(*data, epochs=3, callbacks=callbacks, **FIT)
    np.testing.assert_allclose(sum(told.rates), -float(shift.shift), rtol=1e-4)


class Shift(keras.layers.Layer):
    """Adds a weight to the loss."""

    def build(self, input_shape):
        self.shift = self.add_weight(shape=(), initializer="zeros")

    def call(self, x):
        self.add_loss(self.shift.value)
        return x


def test_functions_of_a_lambda_callback_are_seen(data):
    sets = Sets("on_train_batch_end")
    before = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: sets._set(batch)
    )
    sets.__dict__.pop("on_train_batch_end")
    for callbacks, known in (([before, prune()], True), ([prune(), before], False)):
        sets.updates = 0
        told, history, _ = fitted([sets, *callbacks], data)
        used = [rate_of(update) for update in range(24)]
        assert told.rates == (
            [pytest.approx(u) for u in used] if known else [None] * 24
        )
        assert ("learning_rate" in history) == known


def test_a_rate_that_is_a_function_is_told_when_an_epoch_ends(data):
    told, history, _ = fitted([prune()], data, keras.optimizers.SGD(lambda: 0.25))
    assert told.rates == [None] * 24
    assert history["learning_rate"] == [0.25] * 3


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


def test_a_monitor_keeps_its_distances_where_a_batch_takes_two_steps(data, tmp_path):
    """By the count of batches something is due; the optimizer's steps are written."""
    monitor = ki.Monitor(tmp_path, update_every=4, neurons_every=8)
    callback = ki.IdeaPruneCallback(4, 38, 8, compact="off", log_dir=monitor)
    fitted([callback], data, cls=Twice)
    events = Events(tmp_path)
    assert events.steps("loss/train") == [8, 16, 24, 32, 40, 48]
    assert events.steps("width/ffn_0") == [16, 32, 48]


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


@pytest.mark.parametrize("by", ["log_dir", "itself", "alone"])
@pytest.mark.parametrize("hook", ["on_train_batch_begin", "on_train_batch_end"])
def test_the_monitor_tells_the_rate_that_was_used(by, hook, data, tmp_path):
    monitor = ki.Monitor(tmp_path / "logs", update_every=1)
    callbacks = {
        "log_dir": [prune(log_dir=monitor)],
        "itself": [prune(), monitor],
        "alone": [monitor],
    }[by]
    fitted([Sets(hook), *callbacks], data)
    used = [rate_of(update) for update in range(24)]
    if hook == "on_train_batch_end":
        used = [0.5, *used[:-1]]
    scalars = Events(tmp_path / "logs").scalars("learning_rate")
    for step, rate in scalars.items():
        np.testing.assert_allclose(rate, used[step - 1], rtol=1e-6)
    assert len(scalars) >= 20
