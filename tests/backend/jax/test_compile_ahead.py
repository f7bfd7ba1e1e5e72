"""Narrower train steps compiled in the background: the same numbers, bit for bit."""

import threading
import time

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import (
    LossRecorder,
    residual_model,
    set_random_weights,
    to_numpy,
)

BEGIN, STEPS = 10, 10


class Programs(keras.callbacks.Callback):
    """Which train steps are compiled, and where; it lets the background keep up."""

    def __init__(self, prune):
        super().__init__()
        self.prune, self.background, self.foreground = prune, 0, 0

    def on_train_begin(self, logs=None):
        import jax

        jax.monitoring.register_event_duration_secs_listener(self.count)

    def count(self, event, seconds, **what):
        if event.endswith("backend_compile_duration"):
            step = "train_step" in str(what.get("fun_name"))
            background = threading.current_thread() is not threading.main_thread()
            self.background += step and background
            self.foreground += step and not background

    def on_train_batch_end(self, batch, logs=None):
        until = time.monotonic() + 60
        while not self.prune._session.ahead._programs.idle and time.monotonic() < until:
            time.sleep(0.01)

    def on_train_end(self, logs=None):
        import jax

        jax.monitoring.unregister_event_duration_listener(self.count)


def run(data, ahead, optimizer, compact="progressive", model=None, more=(), **settings):
    """Losses, widths and all weights of a run of 32 steps, and its `Programs`."""
    of_fit = settings.pop("fit", {})
    model = model or residual_model(ffn=settings.pop("ffn", ki.PrunableGatedFFN))
    keras.utils.set_random_seed(0)
    set_random_weights(model)
    model.compile(optimizer(), "mse", **settings.pop("compile", {}))
    prune = ki.IdeaPruneCallback(
        4, BEGIN, STEPS, compact=compact, compile_ahead=ahead, **settings
    )
    losses, programs = LossRecorder(), Programs(prune)
    how = {
        "batch_size": 8,
        "epochs": 4,
        "shuffle": False,
        "verbose": 0,
        **of_fit,
    }
    model.fit(*data, callbacks=[prune, programs, losses, *more], **how)
    weights = [to_numpy(v) for v in [*model.variables, *model.optimizer.variables]]
    return losses.losses, [f.hidden_dim for f in ki.find_ffns(model)], weights, programs


@pytest.mark.daily()
def test_the_same_bits(data):
    without, ahead = (
        run(data, ahead, lambda: keras.optimizers.AdamW(0.01))
        for ahead in (False, True)
    )
    assert ahead[0] == without[0] and ahead[1] == without[1] == [4, 4]
    for ours, theirs in zip(ahead[2], without[2], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The run waits for none but the first, and all that are narrow are compiled ahead.
    foreground, background = ahead[3].foreground, ahead[3].background
    assert not without[3].background and foreground == 1
    assert foreground + background == without[3].foreground > 1


@pytest.mark.daily()
def test_what_changed_meanwhile_is_compiled_anew(data):
    """A program that is not the very one that is needed is not used."""

    class Freeze(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:  # after four programs were traced, before they are needed
                self.model.get_layer("ffn_0").activation = keras.activations.relu

    seen = [
        run(data, ahead, lambda: keras.optimizers.SGD(0.05), more=[Freeze()])
        for ahead in (False, True)
    ]
    for theirs, ours in zip(*(each[2] for each in seen), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert seen[1][3].foreground == 1 + 4


def test_a_fit_that_stops_lets_it_go(data):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    model = residual_model()
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(4, BEGIN, STEPS, compile_ahead=True)
    fit = {"batch_size": 8, "epochs": 4, "verbose": 0}
    model.fit(*data, callbacks=[prune, Stop()], **fit)
    until = time.monotonic() + 60
    while alive() and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive()
    model.fit(*data, callbacks=[prune], **fit)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]


def alive():
    return [t for t in threading.enumerate() if t.name.startswith("keras_idea")]
