"""The callback: widths, logs, and fits that begin and end in other ways."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def trained(prune, data, hidden_dims=(16, 12), callbacks=()):
    keras.utils.set_random_seed(0)
    model = residual_model(hidden_dims)
    model.compile(keras.optimizers.AdamW(ki.CosineDecay(0.02, 1e-3, 24, 2)), "mse")
    history = model.fit(*data, epochs=3, callbacks=[prune, *callbacks], **FIT)
    return model, history


@pytest.mark.parametrize(
    "hidden, target, steps, every, expected",
    [
        (12, 7, 7, 3, 7),  # 7 steps are no multiple of 3
        (31, 0.5, 20, 50, 16),  # never in between
        (16, 4, 23, 1, 4),  # pruning ends with the run
    ],
)
def test_the_width_is_exact(data, hidden, target, steps, every, expected):
    prune = ki.IdeaPruneCallback(target, 1, steps, update_every=every)
    model, history = trained(prune, data, (hidden,))
    (ffn,) = ki.find_ffns(model)
    assert ffn.width == ffn.hidden_dim == int(to_numpy(ffn.mask).sum()) == expected
    assert history.history["width"][-1] == expected


def test_logs_of_epochs(data, tmp_path):
    """And the model is narrow from the step after the last one of the schedule."""
    shapes = []

    class Batches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            shapes.append(ki.find_ffns(self.model)[0].hidden_dim)

    prune = ki.IdeaPruneCallback(4, begin_step=3, prune_steps=8)
    table = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    _, history = trained(prune, data, callbacks=[Batches(), table])
    schedules = [ki.CubicWidth(full, 4, 3, 8) for full in (16, 12)]
    rate = ki.CosineDecay(0.02, 1e-3, 24, 2)
    alive = [sum(schedule(step) for schedule in schedules) for step in (8, 16, 24)]
    logs = history.history
    assert logs["width"] == [n / 2 for n in alive]
    np.testing.assert_allclose(logs["sparsity"], [1 - n / 28 for n in alive])
    rates = [float(rate(step)) for step in (8, 16, 24)]
    np.testing.assert_allclose(logs["learning_rate"], rates, rtol=1e-5)
    assert shapes == [16] * 11 + [4] * 13
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert {"width", "sparsity", "learning_rate"} <= set(header.split(","))
    assert len(rows) == 3


class Twice(keras.Model):
    """Its train step takes two steps of the optimizer."""

    def train_step(self, *args):
        if keras.backend.backend() == "jax":
            state, data = args
            _, state = super().train_step(state, data)
            return super().train_step(state, data)
        (data,) = args
        super().train_step(data)
        return super().train_step(data)


@pytest.mark.daily("torch", "jax")
def test_two_steps_in_a_batch_prune_as_two_batches_do(data):
    """The scores are kept when they are due; the epoch's logs are of the last step."""
    x, y = (array[:32] for array in data)
    masks, schedule = [], ki.CubicWidth(16, 4, 36, 10)
    for cls, repeat in ((Twice, 1), (keras.Model, 2)):
        model = residual_model((16,))
        model = cls(model.inputs, model.outputs)
        rng = np.random.default_rng(3)
        for variable in model.trainable_variables:
            variable.assign(rng.normal(size=variable.shape, scale=0.3))
        model.compile(keras.optimizers.SGD(0.05), "mse")
        rows = np.repeat(np.arange(32).reshape(4, 8), repeat, axis=0).ravel()
        prune = ki.IdeaPruneCallback(4, 36, 10, compact="off")
        history = model.fit(x[rows], y[rows], epochs=6, callbacks=[prune], **FIT)
        assert history.history["width"] == [schedule(8 * n) for n in range(1, 7)]
        masks.append(to_numpy(ki.find_ffns(model)[0].mask))
    np.testing.assert_array_equal(*masks)


@pytest.mark.daily("torch", "jax")
def test_a_second_schedule_is_not_the_first_one_s_trace(data):
    """Nor a plain fit's. jax takes equal functions for the same one."""
    model = residual_model((16,))
    model.compile("adam", "mse")
    model.fit(*data, **FIT)
    for target, begin, widths in ((8, 10, [8]), (3, 26, [8, 3])):
        prune = ki.IdeaPruneCallback(target, begin, 4, compact="off")
        history = model.fit(*data, epochs=len(widths), callbacks=[prune], **FIT)
        assert history.history["width"] == widths


def test_one_callback_for_two_models_twice(data):
    prune = ki.IdeaPruneCallback(4, 2, 3)
    for hidden_dim in (16, 12):
        model = residual_model((hidden_dim,))
        model.compile("adam", "mse")
        for _ in range(2):  # the second fit has nothing left to prune
            history = model.fit(*data, callbacks=[prune], **FIT)
            assert ki.find_ffns(model)[0].hidden_dim == 4
            assert np.isclose(history.history["sparsity"][0], 1 - 4 / hidden_dim)


def test_stopped_in_the_middle_it_stays_masked(data):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 5

    prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=12)
    model, _ = trained(prune, data, (16,), [Stop()])
    (ffn,) = ki.find_ffns(model)
    width = ki.CubicWidth(16, 4, 2, 12)(6)
    assert (ffn.hidden_dim, ffn.width) == (16, width)
    assert ki.compact(model).get_layer("ffn_0").hidden_dim == width


def test_data_of_unknown_length(data):
    def endless():
        while True:
            yield data

    model = residual_model((16,))
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(4, 2, 3)
    model.fit(endless(), epochs=1, steps_per_epoch=8, verbose=0, callbacks=[prune])
    assert ki.find_ffns(model)[0].hidden_dim == 4
