"""Pruning where a model is called or trained in other ways than the stock one.

What must hold is Algorithm 1 with the gradients that the optimizer is given. They come
from a plain twin: under SGD at rate 1024, a power of two that hides the weights, one
step of it tells its gradients. The rest is float64 NumPy.
"""

import copy
import pickle

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests import reference
from tests.helpers import LossRecorder, to_numpy
from tests.layers.test_idle import (
    BACKEND,
    CALLS,
    FIT,
    Clipped,
    ClippedByGlobalNorm,
    ClippedByValue,
    model_of,
)

BEGIN, STEPS, TARGET, RATE, LEARNING_RATE = 3, 9, 4, 1024.0, 0.05


class Masks(keras.callbacks.Callback):
    """The mask after every step, by the neurons' first numbers."""

    def __init__(self):
        super().__init__()
        self.masks = []

    def on_train_batch_end(self, batch, logs=None):
        (ffn,) = ki.find_ffns(self.model)
        mask = np.zeros(ffn.full_dim)
        mask[ffn.original_indices[ffn.kept_neurons()]] = 1.0
        self.masks.append(mask)


def algorithm_1(twin, data, steps):
    """Masks after each step, and the last weights, by the twin's gradients."""
    variables = twin.trainable_variables
    weights = [to_numpy(v).astype("float64") for v in variables]
    names = [v.path.split("/")[-1] for v in variables]
    up, gate, down = (names.index(f"{n}_kernel") for n in ("up", "gate", "down"))
    scores, mask, masks = np.zeros((3, 16)), np.ones(16), []
    twin.compile(keras.optimizers.SGD(RATE), "mse")
    x, y = data
    for t in range(1, steps + 1):
        rows = slice((t - 1) % 8 * 8, (t - 1) % 8 * 8 + 8)
        for variable, weight in zip(variables, weights, strict=True):
            variable.assign(weight.astype("float32"))
        before = [to_numpy(v).astype("float64") for v in variables]
        twin.train_on_batch(x[rows], y[rows])
        after = [to_numpy(v).astype("float64") for v in variables]
        gradients = [(b - a) / RATE for b, a in zip(before, after, strict=True)]
        newest = [np.abs(g * w) for g, w in zip(gradients, weights, strict=True)]
        rows = [newest[up].mean(0), newest[gate].mean(0), newest[down].mean(1)]
        scores = 0.6 * np.stack(rows) + 0.4 * scores
        best = np.argsort(-scores.max(axis=0), kind="stable")
        best = [k for k in best if mask[k]]
        keep = reference.kept(t, 16, TARGET, BEGIN, STEPS)
        mask = np.isin(np.arange(16), best[:keep]).astype("float64")
        weights = [
            w - LEARNING_RATE * g for w, g in zip(weights, gradients, strict=True)
        ]
        weights[up], weights[gate] = weights[up] * mask, weights[gate] * mask
        weights[down] = weights[down] * mask[:, None]
        masks.append(mask)
    return masks, weights, mask


def assert_equals_algorithm_1(data, compact, **kwargs):
    model, twin = (model_of(c, **kwargs) for c in (ki.PrunableGatedFFN, ki.GatedFFN))
    model.compile(keras.optimizers.SGD(LEARNING_RATE), "mse")
    watch = Masks()
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact=compact)
    history = model.fit(*data, epochs=2, callbacks=[prune, watch], **FIT).history
    masks, weights, mask = algorithm_1(twin, data, 16)
    np.testing.assert_array_equal(watch.masks, masks)
    (ffn,) = ki.find_ffns(model)
    assert history["width"] == [masks[7].sum(), masks[15].sum()]
    kept = np.flatnonzero(mask)
    assert ffn.width == len(kept) == TARGET
    for variable, weight in zip(model.trainable_variables, weights, strict=True):
        axis = {"up_kernel": 1, "gate_kernel": 1, "down_kernel": 0}.get(
            variable.path.split("/")[-1]
        )
        value = to_numpy(variable)
        if axis is not None:
            weight = np.take(weight, kept, axis)
            if compact == "off":
                value = np.take(value, kept, axis)
        np.testing.assert_allclose(value, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("call", [name for name in CALLS if name != "once"])
def test_however_it_is_called(call, compact, data):
    """Its sensitivity is that of the weight, whose gradient is the calls' sum."""
    assert_equals_algorithm_1(data, compact, call=CALLS[call])


@pytest.mark.parametrize("cls", [Clipped, ClippedByValue, ClippedByGlobalNorm])
def test_in_a_custom_train_step_that_clips(cls, data):
    assert_equals_algorithm_1(data, "end", cls=cls)


def test_accumulated_gradients_are_scored_by_their_mean(data):
    """Two micro-batches of 4 are one of 8, to the last mask and score."""
    results = []
    for size, count in ((8, None), (4, 2)):
        model = model_of(ki.PrunableGatedFFN)
        optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=count)
        model.compile(optimizer, "mse")
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
        fit = {"batch_size": size, "shuffle": False, "verbose": 0}
        model.fit(*data, epochs=2, callbacks=[prune], **fit)
        (ffn,) = ki.find_ffns(model)
        results.append([to_numpy(v) for v in (ffn.mask, ffn.scores, *ffn.kernels)])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-7)


class Elsewhere(Clipped):
    """A train step whose weights another optimizer trains."""

    def train_step(self, *arguments):
        mine, self.optimizer = self.optimizer, self.other
        try:
            return super().train_step(*arguments)
        finally:
            self.optimizer = mine

    def _jax_step(self, state, data):
        trainable, resting, slots, metrics = state
        others = [v.value for v in self.other.variables]
        logs, state = super()._jax_step((trainable, resting, others, metrics), data)
        return logs, (*state[:2], slots, metrics)


class Around(Clipped):
    """A train step that takes the optimizer's steps past its instance."""

    def train_step(self, *arguments):
        apply = vars(self.optimizer).pop("apply", None)
        try:
            return super().train_step(*arguments)
        finally:
            if apply is not None:
                self.optimizer.apply = apply


@pytest.mark.parametrize("batches", [2, 8], ids=["before", "in"])
def test_an_optimizer_that_is_gone_round_stops_the_run(batches, data):
    """At the first epoch's end, before or in pruning, with nothing cut."""
    model = model_of(ki.PrunableGatedFFN, cls=Around)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 2, 10)
    with pytest.raises(RuntimeError, match="pruning saw 0 of them"):
        model.fit(*data, epochs=10, steps_per_epoch=batches, callbacks=[prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert ffn.hidden_dim == ffn.width == 16 and "apply" not in vars(model.optimizer)


@pytest.mark.parametrize("begin", [2, 40])
def test_weights_that_something_else_trains_stop_the_run(data, begin):
    model = model_of(ki.PrunableGatedFFN, cls=Elsewhere)
    model.compile("sgd", "mse")
    model.other = keras.optimizers.SGD(0.01)
    model.other.build(model.trainable_variables)
    prune, epochs = ki.IdeaPruneCallback(TARGET, begin, 6), LossRecorder()
    with pytest.raises(RuntimeError, match="took no step.*trained by something else"):
        model.fit(*data, epochs=9, callbacks=[epochs, prune], **FIT)
    assert len(epochs.losses) == 8
    (ffn,) = ki.find_ffns(model)
    assert ffn.hidden_dim == ffn.width == 16


@pytest.mark.parametrize("begin", [2, 60])
def test_a_branch_without_a_loss_stops_the_run(data, begin):
    model = model_of(ki.PrunableGatedFFN, branch=True)
    model.compile("sgd", loss=["mse", None])
    x, y = data
    prune, steps = ki.IdeaPruneCallback(TARGET, begin, 12), LossRecorder()
    with pytest.raises(RuntimeError, match="No gradient has reached side .*way to the"):
        model.fit(x, [y, y], epochs=9, callbacks=[steps, prune], **FIT)
    assert len(steps.losses) <= 16
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 16]


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("every", [None, 3])
def test_an_optimizer_that_averages_the_weights(every, compact, data):
    """What the averages put back of dead neurons is masked, or cut out."""
    model = model_of(ki.PrunableGatedFFN)
    model.compile(
        keras.optimizers.Adam(
            0.01, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=every
        ),
        "mse",
    )
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact=compact)
    model.fit(*data, epochs=2, callbacks=[prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert ffn.width == TARGET
    narrow = ki.compact(model)
    outputs = [m.predict(data[0], verbose=0) for m in (model, narrow)]
    np.testing.assert_allclose(*outputs, atol=1e-5)


RESTORING = {
    "EarlyStopping": lambda folder: keras.callbacks.EarlyStopping(
        restore_best_weights=True, monitor="loss"
    ),
    "BackupAndRestore": lambda folder: keras.callbacks.BackupAndRestore(folder),
    "SwapEMAWeights": lambda folder: keras.callbacks.SwapEMAWeights(),
}


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize("name", RESTORING)
def test_callbacks_that_restore_are_refused_by_name(name, first, data, tmp_path):
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse")
    before = [to_numpy(v) for v in model.variables]
    callbacks = [RESTORING[name](tmp_path), ki.IdeaPruneCallback(TARGET, 2, 6)]
    with pytest.raises(ValueError, match=f"{name}.*puts weights of an earlier step"):
        model.fit(*data, callbacks=callbacks if first else callbacks[::-1], **FIT)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    assert "apply" not in vars(model.optimizer)


def test_callbacks_that_do_not_restore_are_not(data, tmp_path):
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    stop = keras.callbacks.EarlyStopping(monitor="loss", patience=5)
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "{epoch}.keras", monitor="loss", save_best_only=True
    )
    prune = ki.IdeaPruneCallback(TARGET, 2, 6)
    model.fit(*data, epochs=2, callbacks=[stop, best, prune], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == TARGET
    # There is nothing left to prune: a second fit may restore.
    restore = RESTORING["EarlyStopping"](tmp_path)
    model.fit(*data, epochs=2, callbacks=[restore, prune], **FIT)


@pytest.mark.parametrize("end", [".keras", ".weights.h5"])
def test_saved_in_the_middle_it_loads_and_goes_on(end, data, tmp_path):
    """By Keras's ModelCheckpoint, at an epoch's end: optimizer, scores and masks."""
    path = tmp_path / f"half{end}"
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    whole = end == ".keras"
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=not whole)
    stop = _StopAfter(8)
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS)
    model.fit(*data, epochs=3, callbacks=[save, prune, stop], **FIT)
    if whole:
        loaded = keras.models.load_model(path)
    else:
        loaded = model_of(ki.PrunableGatedFFN)
        loaded.compile(keras.optimizers.Adam(0.01), "mse")
        loaded.optimizer.build(loaded.trainable_variables)
        loaded.load_weights(path)
    pair = [ki.find_ffns(m)[0] for m in (model, loaded)]
    for name in ("mask", "scores"):
        arrays = [to_numpy(getattr(ffn, name)) for ffn in pair]
        np.testing.assert_array_equal(*arrays)
    assert pair[1].width == ki.CubicWidth(16, TARGET, BEGIN, STEPS)(8)
    slots = [[to_numpy(v) for v in m.optimizer.variables] for m in (model, loaded)]
    for one, other in zip(*slots, strict=True):
        np.testing.assert_array_equal(one, other)
    for m in (model, loaded):
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS)
        m.fit(*data, epochs=1, callbacks=[prune], **FIT)
    outputs = [m.predict(data[0], verbose=0) for m in (model, loaded)]
    np.testing.assert_allclose(*outputs, atol=1e-5)


class _StopAfter(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            self.model.stop_training = True


def test_files_of_another_width(data, tmp_path):
    path = tmp_path / "narrow.weights.h5"
    model = model_of(ki.PrunableGatedFFN)
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 2, 6)
    model.fit(*data, callbacks=[prune], **FIT)
    model.save_weights(path)
    with pytest.raises(ValueError, match="4 neurons of 'ffn', which has 16.*load_mod"):
        model_of(ki.PrunableGatedFFN).load_weights(path)
    ki.compact(model).save_weights(path)
    with pytest.raises(ValueError, match="4 neurons of 'ffn', which has 16.*load_mod"):
        model_of(ki.GatedFFN).load_weights(path)
    plain = tmp_path / "plain.weights.h5"
    model_of(ki.GatedFFN).save_weights(plain)
    with pytest.raises(ValueError, match="nothing of 'ffn'.*PrunableGatedFFN"):
        model_of(ki.PrunableGatedFFN).load_weights(plain)


def test_weights_go_into_a_clone(data):
    """A model narrowed in `fit`, cloned: it has the same variables, and is as plain."""
    model = model_of(ki.PrunableGatedFFN)
    model.compile("adam", "mse")
    model.fit(*data, callbacks=[ki.IdeaPruneCallback(TARGET, 2, 6)], **FIT)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    outputs = [m.predict(data[0], verbose=0) for m in (model, clone)]
    np.testing.assert_array_equal(*outputs)


class Counted(keras.layers.Layer):
    """Counts how often it is traced."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def call(self, x):
        self.calls.append(1)
        return x


@pytest.mark.skipif(BACKEND == "torch", reason="traces nothing: it runs eagerly")
def test_fits_that_do_not_finish_are_traced_once(data):
    counted = Counted()
    inputs = keras.Input((5, 8))
    x = inputs + ki.PrunableGatedFFN(16)(counted(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 90, 2)
    found = []
    for _ in range(4):
        model.fit(*data, epochs=12, callbacks=[prune, _StopAfter(8)], **FIT)
        model.fit(*data, epochs=1, **FIT)  # without it too
        found.append(len(counted.calls))
    assert found == found[:1] * 4


def test_a_second_schedule_is_not_the_first_one_s_trace(data):
    """Two callbacks of one structure: jax takes equal functions for the same one."""
    model = model_of(ki.PrunableGatedFFN)
    model.compile("adam", "mse")
    first = ki.IdeaPruneCallback(8, 2, 4, compact="off")
    second = ki.IdeaPruneCallback(3, 9, 4, compact="off")
    for prune, width in ((first, 8), (second, 3)):
        history = model.fit(*data, epochs=1, callbacks=[prune], **FIT).history
        assert history["width"] == [width] == [ki.find_ffns(model)[0].width]


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))]
)
def test_a_callback_is_copied_after_a_fit(copied, data):
    prune = ki.IdeaPruneCallback(TARGET, 2, 6, method="random", compact="off")
    for _ in range(2):
        model = model_of(ki.PrunableGatedFFN)
        model.compile("adam", "mse")
        model.fit(*data, callbacks=[prune], **FIT)
        assert ki.find_ffns(model)[0].width == TARGET
        settings = {k: v for k, v in vars(prune).items() if isinstance(v, (int, str))}
        prune = copied(prune)
        kept = {k: v for k, v in vars(prune).items() if isinstance(v, (int, str))}
        assert {k: kept[k] for k in kept} == {k: settings[k] for k in kept}


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_the_learning_rate_of_another_callback_is_told(first, data):
    told = []

    class Tell(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            told.append(logs["learning_rate"])

    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.SGD(0.5), "mse")
    rates = [0.1, 0.02, 0.003]
    setter = keras.callbacks.LearningRateScheduler(lambda epoch, _: rates[epoch])
    prune = ki.IdeaPruneCallback(TARGET, 2, 6)
    callbacks = [setter, prune] if first else [prune, setter]
    history = model.fit(*data, epochs=3, callbacks=[*callbacks, Tell()], **FIT).history
    np.testing.assert_allclose(history["learning_rate"], rates, rtol=1e-6)
    np.testing.assert_allclose(told, np.repeat(rates, 8), rtol=1e-6)


def test_a_fit_that_an_exception_ended(data):
    """Another callback takes over; nothing of the first is left at work."""

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                raise KeyboardInterrupt

    model = model_of(ki.PrunableGatedFFN)
    model.compile("adam", "mse")
    first = ki.IdeaPruneCallback(8, 1, 20)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, epochs=4, callbacks=[first, Fail()], **FIT)
    second = ki.IdeaPruneCallback(TARGET, 6, 8)
    model.fit(*data, epochs=2, callbacks=[second], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == TARGET
    assert "apply" not in vars(model.optimizer)
    sizes = {len(v.shape) and v.shape[-1] for v in model.optimizer.variables}
    assert 16 not in sizes


def test_methods_that_measure_refuse_two_calls(data):
    """Before the first step: it cannot tell the calls apart."""
    for method in ("activation", "learned_mask"):
        model = model_of(ki.PrunableGatedFFN, call=CALLS["twice"])
        model.compile("adam", "mse")
        begin = 4 if method == "activation" else 0
        prune = ki.IdeaPruneCallback(TARGET, begin, 4, method=method)
        with pytest.raises(ValueError, match="more than once in a forward"):
            model.fit(*data, callbacks=[prune], **FIT)


def test_methods_that_measure_see_gradients_that_were_changed(data):
    """A custom step that clips also clips what the probes send back."""
    model = model_of(ki.PrunableGatedFFN, cls=ClippedByGlobalNorm)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 2, 10, method="learned_mask")
    with pytest.raises(RuntimeError, match="counted .* so what it measured is wrong"):
        model.fit(*data, epochs=2, callbacks=[prune], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == 16


def test_the_logs_of_an_epoch_are_those_of_the_layers(data):
    """A mask that somebody else made narrower is told as it is."""

    class Kill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            (ffn,) = ki.find_ffns(self.model)
            ffn.mask.assign(np.float32(np.arange(16) < 6))

    model = model_of(ki.PrunableGatedFFN)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 12, 2)
    history = model.fit(*data, epochs=2, callbacks=[Kill(), prune], **FIT).history
    assert history["width"] == [6, 4]


def test_a_model_that_its_first_step_builds(data):
    """On tensorflow alone `fit` builds a model by tracing; its first step counts."""
    results = []
    for inputs in ([keras.Input((5, 8))], []):
        keras.utils.set_random_seed(0)
        layers = [ki.PrunableGatedFFN(16), keras.layers.Dense(1)]
        model = keras.Sequential([*inputs, *layers])
        model.compile(keras.optimizers.SGD(LEARNING_RATE), "mse")
        prune = ki.IdeaPruneCallback(TARGET, 0, 4)
        history = model.fit(*data, epochs=2, callbacks=[prune], **FIT).history
        (ffn,) = ki.find_ffns(model)
        assert history["width"] == [TARGET, TARGET] and ffn.hidden_dim == TARGET
        results.append([ffn.original_indices, to_numpy(ffn.scores), history["loss"]])
        model.fit(*data, epochs=1, **FIT)
        assert "apply" not in vars(model.optimizer)
    np.testing.assert_array_equal(results[0][0], results[1][0])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)


def test_other_models_of_the_same_layers(data):
    """What was traced before the narrowing is made anew in each model."""
    inputs = keras.Input((5, 8))
    hidden = inputs + ki.PrunableGatedFFN(16)(inputs)
    features = keras.Model(inputs, hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    outer = keras.Sequential([keras.Input((5, 8)), model])
    outer.compile("sgd", "mse")  # never trained
    model.compile("sgd", "mse")
    x, y = data
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            for other in (features, outer):
                expected = to_numpy(other(x[:8]))
                answers = other.predict(x[:8], verbose=0)
                np.testing.assert_allclose(answers, expected, atol=1e-6)
            loss = float(np.mean((to_numpy(outer(x)) - y) ** 2))
            assert outer.evaluate(x, y, verbose=0) == pytest.approx(loss, rel=1e-5)
            seen.append(ki.find_ffns(features)[0].hidden_dim)

    prune = ki.IdeaPruneCallback(TARGET, 4, 10)
    model.fit(x, y, epochs=3, callbacks=[prune, Look()], **FIT)
    assert seen == [16, TARGET, TARGET]
