"""Narrower train steps compiled in the background: the same numbers, bit for bit."""

import functools
import threading
import time

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.callbacks.prune.compile_ahead import should_compile_ahead
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import (
    LossRecorder,
    residual_model,
    set_random_weights,
    to_numpy,
)

BEGIN, STEPS = 10, 10


class Own(keras.Model):
    """A train step of one's own around Keras's."""

    def train_step(self, *arguments):
        return super().train_step(*arguments)


class Programs(keras.callbacks.Callback):
    """Which train steps are compiled, and where; it lets the background keep up."""

    def __init__(self, prune):
        super().__init__()
        self.prune, self.background, self.foreground = prune, 0, 0

    def on_train_begin(self, logs=None):
        if keras.backend.backend() == "jax":
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
        if keras.backend.backend() == "jax":
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


END = {"compact": "end"}
#: Optimizer and settings; programs that are compiled where the run waits: the first,
#: and with some methods what they measure by, and what comes after it.
CASES = {
    "adamw": (lambda: keras.optimizers.AdamW(0.01), {}, 1),
    "muon": (lambda: keras.optimizers.Muon(0.01), END, 1),
    "adafactor": (lambda: keras.optimizers.Adafactor(0.01), END, 1),
    "accumulated, of Dense layers": (
        lambda: keras.optimizers.Adam(
            0.01, gradient_accumulation_steps=2, global_clipnorm=1.0
        ),
        {"fit": {"epochs": 8}, "ffn": dense_gated, **END},
        1,
    ),
    "scaled": (
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)),
        END,
        1,
    ),
    "random": (lambda: keras.optimizers.SGD(0.05), {"method": "random"}, 1),
    "activation": (lambda: keras.optimizers.SGD(0.05), {"method": "activation"}, 2),
    "learned_mask": (
        lambda: keras.optimizers.Adam(0.01),
        {"method": "learned_mask"},
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits(name, data):
    optimizer, settings, first = CASES[name]
    without = run(data, False, optimizer, **settings)
    ahead = run(data, True, optimizer, **settings)
    assert ahead[0] == without[0] and ahead[1] == without[1] == [4, 4]
    for ours, theirs in zip(ahead[2], without[2], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    if keras.backend.backend() == "jax":
        # None for nothing, and in the background all that are narrow.
        foreground, background = ahead[3].foreground, ahead[3].background
        assert not without[3].background
        assert foreground == first
        assert foreground + background == without[3].foreground > 1


def test_a_step_of_ones_own(data):
    """It is traced once more for each program, and compiled as often."""

    def own():
        inputs = keras.Input((5, 8))
        hidden = ki.PrunableGatedFFN(16)(inputs)
        outputs = keras.layers.Dense(1, use_bias=False, name="head")(hidden)
        return Own(inputs, outputs)

    runs = [
        run(data, ahead, lambda: keras.optimizers.SGD(0.05), model=own())
        for ahead in (False, True)
    ]
    for theirs, ours in zip(*(seen[2] for seen in runs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras on torch takes steps one by one"
)
def test_steps_in_twos(data):
    """They come to other widths than those that were foreseen, and to the same end."""
    twos = {"compile": {"steps_per_execution": 2}}
    first, second = (
        run(data, ahead, lambda: keras.optimizers.SGD(0.05), **twos)
        for ahead in (False, True)
    )
    for theirs, ours in zip(first[2], second[2], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_short_last_batch(data):
    """The program of the full batches is not asked for it."""
    x, y = data
    short = (x[:60], y[:60])  # seven of 8 and one of 4
    first, second = (
        run(short, ahead, lambda: keras.optimizers.SGD(0.05)) for ahead in (False, True)
    )
    assert first[0] == second[0] and first[1] == second[1]


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
    if keras.backend.backend() == "jax":
        assert seen[1][3].foreground == 1 + 4


class OwnLoss(Own):
    """A loss that reads something of the model when it is traced."""

    def compute_loss(self, *arguments, **named):
        return self.factor() * super().compute_loss(*arguments, **named)


class AtEachBatch(keras.callbacks.Callback):
    def __init__(self, do):
        super().__init__()
        self.do, self.step = do, 0

    def on_train_batch_begin(self, batch, logs=None):
        self.do(self.step)
        self.step += 1


def losses_with(data, ahead, prepare):
    """Those of a run with a loss of one's own: what it reads is made by `prepare`."""
    wide = residual_model()
    model = OwnLoss(wide.inputs, wide.outputs)
    more = [AtEachBatch(prepare(model))]
    sgd = functools.partial(keras.optimizers.SGD, 0.05)
    return run(data, ahead, sgd, model=model, more=more)[0]


def test_a_step_that_cannot_be_traced_before_its_time(data):
    """The run says so, and takes the steps that it would have taken."""

    def prepare(model):
        def anchored():
            kernel = ki.find_ffns(model)[0].kernels[0]
            return 1.0 + keras.ops.mean((kernel - model.anchor) ** 2)

        def set_anchor(step):  # of the width that there is
            shape = ki.find_ffns(model)[0].kernels[0].shape
            model.anchor = np.zeros(shape, "float32")

        set_anchor(0)
        model.factor = anchored
        return set_anchor

    without = losses_with(data, False, prepare)
    if keras.backend.backend() == "jax":
        with pytest.warns(UserWarning, match="cannot be traced before that"):
            ahead = losses_with(data, True, prepare)
    else:
        ahead = losses_with(data, True, prepare)
    assert ahead == without


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="a function of jax's")
def test_a_step_that_calls_python_is_compiled_when_it_is_due(data):
    """The text of a program does not say which function it calls."""
    import jax

    def prepare(model):
        def called():
            stage = np.float32(1 + model.stage)
            shape = jax.ShapeDtypeStruct((), "float32")
            return jax.pure_callback(lambda _: stage, shape, np.float32(0))

        def set_stage(step):
            model.stage = step // (BEGIN + 4)

        model.factor = called
        set_stage(0)
        return set_stage

    assert losses_with(data, True, prepare) == losses_with(data, False, prepare)


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


def test_by_default_not_where_cpus_take_the_steps():
    assert (
        should_compile_ahead(True)
        and not should_compile_ahead(False)
        and should_compile_ahead(None) == ON_ACCELERATOR
    )


def _on_accelerator():
    if keras.backend.backend() != "jax":
        return False
    import jax

    return jax.devices()[0].platform != "cpu"


ON_ACCELERATOR = _on_accelerator()
