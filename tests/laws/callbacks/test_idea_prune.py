"""The callback: widths, logs, compaction in the middle of `fit`."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import MODELS, LossRecorder, residual_model, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def trained(prune, data, epochs=3, hidden_dims=(16, 12), callbacks=(), seed=0, **kw):
    keras.utils.set_random_seed(seed)
    model = residual_model(hidden_dims)
    model.compile(keras.optimizers.AdamW(ki.CosineDecay(0.02, 1e-3, 24, 2)), "mse")
    history = model.fit(
        *data, epochs=epochs, callbacks=[prune, *callbacks], **FIT, **kw
    )
    return model, history


@pytest.mark.parametrize(
    "hidden, target, begin, steps, every",
    [
        (16, 4, 2, 6, 1),
        (16, 1, 0, 24, 1),
        (16, 16, 3, 5, 1),
        (17, 5, 0, 1, 1),
        (12, 7, 5, 7, 3),  # 7 is no multiple of 3
        (12, 0.25, 4, 10, 4),
        (31, 0.5, 1, 20, 50),  # never in between
    ],
)
@pytest.mark.parametrize("compact", ["end", "off"])
def test_the_width_is_exact(data, hidden, target, begin, steps, every, compact):
    prune = ki.IdeaPruneCallback(
        target, begin, steps, compact=compact, update_every=every
    )
    model, history = trained(prune, data, hidden_dims=(hidden,))
    (ffn,) = ki.find_ffns(model)
    expected = target if isinstance(target, int) else round(hidden * target)
    assert ffn.width == expected
    assert int(to_numpy(ffn.mask).sum()) == expected
    assert ffn.hidden_dim == (expected if compact == "end" else hidden)
    assert history.history["width"][-1] == expected


def test_logs_of_batches_and_epochs(data, tmp_path):
    seen = []

    class Batches(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((logs["width"], logs["sparsity"], logs["learning_rate"]))

    prune = ki.IdeaPruneCallback(4, begin_step=5, prune_steps=10)
    table = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    _, history = trained(prune, data, callbacks=[Batches(), table])
    schedules = [ki.CubicWidth(full, 4, 5, 10) for full in (16, 12)]
    rate = ki.CosineDecay(0.02, 1e-3, 24, 2)
    for step, (width, sparsity, learning_rate) in enumerate(seen, start=1):
        alive = sum(schedule(step) for schedule in schedules)
        assert width == alive / 2
        assert np.isclose(sparsity, 1 - alive / 28)
        assert np.isclose(learning_rate, float(rate(step - 1)))  # the one it used
    assert history.history["width"] == [seen[i][0] for i in (7, 15, 23)]
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert {"width", "sparsity", "learning_rate"} <= set(header.split(","))
    assert len(rows) == 3


def test_a_model_fitted_before_is_pruned_too(data):
    """Its train function was traced without a schedule."""
    model = residual_model((16,))
    model.compile("adam", "mse")
    model.fit(*data, epochs=1, **FIT)
    model.evaluate(*data, verbose=0)
    prune = ki.IdeaPruneCallback(4, begin_step=10, prune_steps=4, compact="off")
    model.fit(*data, epochs=1, callbacks=[prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert ffn.width == 4


def test_a_second_fit_with_the_same_callback_goes_on(data):
    model = residual_model((16,))
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=6)
    for _ in range(2):
        history = model.fit(*data, epochs=1, callbacks=[prune], **FIT)
        assert history.history["width"] == [4]
        assert history.history["sparsity"] == [0.75]


def test_the_logs_of_a_second_stage_begin_at_the_first_one_s_width(data):
    model = residual_model((16,))
    model.compile("adam", "mse")
    for target, begin, widths in ((8, 2, [8]), (4, 18, [8, 4])):
        prune = ki.IdeaPruneCallback(target, begin, 2, compact="off")
        history = model.fit(*data, epochs=len(widths), callbacks=[prune], **FIT)
        assert history.history["width"] == widths


def test_one_callback_for_two_models(data):
    prune = ki.IdeaPruneCallback(4, 2, 3)
    for hidden_dim in (16, 12):
        model = residual_model((hidden_dim,))
        model.compile("adam", "mse")
        history = model.fit(*data, callbacks=[prune], **FIT)
        assert ki.find_ffns(model)[0].hidden_dim == 4
        assert np.isclose(history.history["sparsity"][0], 1 - 4 / hidden_dim)


def test_stopped_in_the_middle_it_stays_masked(data):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 5

    prune = ki.IdeaPruneCallback(4, begin_step=2, prune_steps=12)
    model, _ = trained(prune, data, hidden_dims=(16,), callbacks=[Stop()])
    (ffn,) = ki.find_ffns(model)
    width = ki.CubicWidth(16, 4, 2, 12)(6)
    assert (ffn.hidden_dim, ffn.width) == (16, width)
    assert ki.compact(model).get_layer("ffn_0").hidden_dim == width
    # Without the callback it is not pruned further.
    model.fit(*data, epochs=1, **FIT)
    assert ffn.width == width


def test_pruning_that_ends_with_the_run_is_compacted(data):
    prune = ki.IdeaPruneCallback(4, begin_step=10, prune_steps=14)
    model, _ = trained(prune, data)  # 24 steps
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]


def test_data_of_unknown_length(data):
    def endless():
        while True:
            yield data

    model = residual_model((16,))
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(4, 2, 3)
    model.fit(endless(), epochs=1, steps_per_epoch=8, verbose=0, callbacks=[prune])
    assert ki.find_ffns(model)[0].hidden_dim == 4
