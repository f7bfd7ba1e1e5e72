"""Monitor in further kinds of runs: several fits, a resumed one, other methods."""

import copy

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.events import Events
from tests.support.helpers import (
    residual_model,
    set_random_weights,
)
from tests.support.monitored import compiled, flops_of_a_batch

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


WIDTHS = {"ffn_0": ki.CubicWidth(16, 4, 2, 12), "ffn_1": ki.CubicWidth(12, 4, 2, 12)}


def test_several_fits_go_on(data, tmp_path):
    model = compiled()
    monitor = ki.Monitor(tmp_path, update_every=4, neurons_every=4)
    prune = ki.IdeaPruneCallback(4, 2, 6, log_dir=monitor)
    for _ in range(3):
        model.fit(*data, callbacks=[prune], **FIT)
    events = Events(tmp_path)
    assert events.steps("loss/train") == [4, 8, 12, 16, 20, 24]
    flops = events.scalars("flops/train")[24]
    by_hand = 8 * flops_of_a_batch(16, 12) + 16 * flops_of_a_batch(4, 4)
    assert np.isclose(flops, by_hand)
    assert events.scalars("width/ffn_0")[24] == 4
    # Of 16 at first, though the second and third fit know 4 alone.
    assert events.scalars("sparsity/ffn_0")[24] == 0.75


def test_a_relative_folder_stays_where_it_was(data, tmp_path, monkeypatch):
    """Although the working directory changes between two fits."""
    monkeypatch.chdir(tmp_path)
    model, monitor = compiled(), ki.Monitor("logs", update_every=4, neurons_every=99)
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        model.fit(*data, callbacks=[monitor], **FIT)
    assert Events(tmp_path / "logs").steps("loss/train") == [4, 8, 12, 16]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "one", "other"]
    assert copy.copy(monitor).log_dir == str(tmp_path / "logs")
    assert ki.Monitor("gs://bucket/logs").log_dir == "gs://bucket/logs"


def test_a_resumed_run_replaces_what_was_lost(data, tmp_path):
    """Killed at step 14, resumed from a checkpoint of step 8: each step once."""
    x, y = data
    logs = tmp_path / "logs"

    class Save(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                self.model.save(tmp_path / "half.keras")

    class Killed(Exception):
        pass

    class Kill(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if self.model.optimizer.iterations >= 14:
                raise Killed("now")

    def monitor():
        return ki.Monitor(logs, update_every=2, neurons_every=4)

    first = ki.IdeaPruneCallback(4, 2, 20, log_dir=monitor())
    with pytest.raises(Killed, match="now"):
        compiled().fit(x, y, epochs=3, callbacks=[Save(), first, Kill()], **FIT)
    first._monitor._log.close()  # a flush leaves out what its thread has not taken
    lost = Events(logs).scalars("loss/train")
    assert list(lost)[-1] >= 12
    model = keras.models.load_model(tmp_path / "half.keras")
    second = ki.IdeaPruneCallback(4, 2, 20, log_dir=monitor())
    model.fit(x[::-1], y[::-1], epochs=2, callbacks=[second], **FIT)
    events = Events(logs)
    shown = events.scalars("loss/train")
    assert events.steps("loss/train") == list(range(2, 25, 2))
    assert [shown[step] == lost[step] for step in (2, 4, 6, 8)] == [True] * 4
    assert shown[10] != lost[10]  # other batches
    by_hand = 22 * flops_of_a_batch(16, 12) + 2 * flops_of_a_batch(4, 4)
    assert np.isclose(events.scalars("flops/train")[24], by_hand)


def test_gradient_accumulation(data, tmp_path):
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    model = compiled(optimizer=optimizer)
    prune = ki.IdeaPruneCallback(4, 2, 6, log_dir=ki.Monitor(tmp_path, 1, 4))
    model.fit(*data, epochs=3, callbacks=[prune], **FIT)  # 12 steps
    events = Events(tmp_path)
    assert events.steps("loss/train") == list(range(1, 13))
    by_hand = 16 * flops_of_a_batch(16, 12) + 8 * flops_of_a_batch(4, 4)
    assert np.isclose(events.scalars("flops/train")[12], by_hand)
    tokens = events.scalars("speed/tokens_per_second")
    steps = events.scalars("speed/steps_per_second")
    # None of an interval whose two ends a thread has seen at once.
    assert tokens.keys() == steps.keys() and len(tokens) > 6
    for step, speed in steps.items():
        assert np.isclose(tokens[step], 80 * speed, rtol=1e-5)


@pytest.mark.parametrize("method", ["random", "activation", "learned_mask"])
def test_every_method(data, tmp_path, method):
    model = compiled()
    monitor = ki.Monitor(tmp_path, update_every=4, neurons_every=4)
    prune = ki.IdeaPruneCallback(4, 8, 8, method=method, log_dir=monitor)
    history = model.fit(*data, epochs=3, callbacks=[prune], **FIT)
    events = Events(tmp_path)
    assert events.scalars("width/ffn_0")[24] == 4
    assert events.scalars("width/mean")[24] == history.history["width"][-1] == 4
    narrow = prune.end_step  # the step after which the model was narrow
    by_hand = narrow * flops_of_a_batch(16, 12)
    by_hand += (24 - narrow) * flops_of_a_batch(4, 4)
    assert np.isclose(events.scalars("flops/train")[24], by_hand)


def test_neurons_over_milestones(data, tmp_path):
    """Read as in a run that is never narrowed, by the numbers they had at first."""
    shown, levels = {}, {}
    for compact in ("progressive", "off"):
        model = compiled()
        set_random_weights(model)
        # One of its own, and one that reads at other steps than the milestones.
        own = ki.Monitor(tmp_path / compact, update_every=1, neurons_every=2)
        other = ki.Monitor(tmp_path / f"{compact}-other", 1, neurons_every=5)
        prune = ki.IdeaPruneCallback(4, 2, 14, compact=compact, log_dir=own)
        widths = {}

        class Widths(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None, widths=widths):
                ffns = ki.find_ffns(self.model)
                widths[len(widths) + 1] = [ffn.hidden_dim for ffn in ffns]

        callbacks = [prune, other, Widths()]
        model.fit(*data, epochs=2, callbacks=callbacks, **FIT)
        events = [Events(tmp_path / compact), Events(tmp_path / f"{compact}-other")]
        names = [f"{kind}/ffn_{i}" for kind in ("width", "churn") for i in (0, 1)]
        shown[compact] = [e.scalars(name) for e in events for name in names]
        layers = own._watch.levels() + other._watch.levels()
        # The last step's neurons are ranked no more where they are narrow.
        levels[compact] = [
            dict(zip(layer.steps.tolist(), layer.levels, strict=True))
            for layer in layers
        ]
        assert len(set(map(tuple, widths.values()))) == (
            6 if compact == "progressive" else 1
        )
        flops = events[0].scalars("flops/train")[16]
        assert np.isclose(flops, sum(flops_of_a_batch(*w) for w in widths.values()))
    for progressive, off in zip(shown["progressive"], shown["off"], strict=True):
        assert progressive == {step: off[step] for step in progressive}
        assert len(progressive) >= 2
    for progressive, off in zip(levels["progressive"], levels["off"], strict=True):
        assert len(progressive) >= 3
        for step, level in progressive.items():
            np.testing.assert_array_equal(level, off[step])


@pytest.mark.parametrize("method", ["sensitivity", "random"])
def test_in_the_list_it_shows_what_log_dir_shows(data, tmp_path, method):
    """The target and the last ranking too, which it finds with the FFNs."""
    own, other = (ki.Monitor(tmp_path / name, 1, 5) for name in ("own", "other"))
    prune = ki.IdeaPruneCallback(4, 6, 8, method=method, log_dir=own)
    model = compiled()
    model.fit(*data, epochs=2, callbacks=[prune, other], **FIT)
    shown = [Events(folder) for folder in (own.log_dir, other.log_dir)]
    assert shown[0].tags == shown[1].tags
    narrowed = prune.end_step
    assert narrowed in shown[0].steps("churn/ffn_0")
    for tag in shown[0].tags:
        if not tag.startswith(("speed", "memory")):
            assert shown[0].scalars(tag) == shown[1].scalars(tag), tag
    for name in WIDTHS:
        tag = f"importance_log10/{name}"
        of_both = [events.histograms(tag)[narrowed] for events in shown]
        assert of_both[0].num == of_both[1].num == 4
    for levels in zip(own._watch.levels(), other._watch.levels(), strict=True):
        np.testing.assert_array_equal(levels[0].levels, levels[1].levels)
        assert (levels[0].levels[-1] > 0).sum() == 4


def test_narrow_before_the_first_reading(data, tmp_path):
    """A model that is narrowed as `fit` begins is ranked a last time all the same."""
    model = compiled()
    start = ki.IdeaPruneCallback(4, 2, 4, compact="off")
    model.fit(*data, callbacks=[start], **FIT)
    prune = ki.IdeaPruneCallback(4, 2, 4, log_dir=ki.Monitor(tmp_path, 4, 1000))
    model.fit(*data, callbacks=[prune], **FIT)
    events = Events(tmp_path)
    assert events.histograms("importance_log10/ffn_0")[8].num == 4
    assert events.scalars("width/ffn_0") == {8: 4, 16: 4}
    assert list(events.images("neurons")) == [8, 16]


def test_a_copy_logs_too(data, tmp_path):
    prune = copy.deepcopy(ki.IdeaPruneCallback(4, 2, 4, log_dir=tmp_path))
    compiled().fit(*data, callbacks=[prune], **FIT)
    assert Events(tmp_path).scalars("width/ffn_0")[8] == 4


def test_what_is_unknown_is_left_out(data, tmp_path):
    """A model without FFNs, of inputs of unknown length, without a peak."""
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile("adam", "mse")
    model.fit(*data, callbacks=[ki.Monitor(tmp_path, update_every=2)], **FIT)
    tags = Events(tmp_path).tags
    assert {"loss/train", "learning_rate", "speed/steps_per_second"} <= tags
    groups = {tag.split("/")[0] for tag in tags}
    assert not groups & {"flops", "width", "churn"}
    assert "speed/tokens_per_second" not in tags
    given = ki.Monitor(tmp_path / "given", update_every=2, tokens_per_batch=40)
    model.fit(*data, callbacks=[given], **FIT)
    events = Events(tmp_path / "given")
    assert "flops/utilisation" not in events.tags
    # The first eight steps were not seen: nothing is known of their cost.
    assert np.isclose(events.scalars("flops/train")[16], 8 * 6 * 40 * 8)


def test_a_stock_kerashub_model(tmp_path):
    pytest.importorskip("keras_hub")
    from tests.support.hub_models import batch, randomize, tiny_lm

    lm = tiny_lm("llama3")
    randomize(lm, 0.3)
    lm.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=None)
    x, y = batch(lm, np.random.default_rng(0), size=16)[:2]
    hidden = [ffn.hidden_dim for ffn in ki.find_ffns(lm)]
    tokens = 2 * y.shape[1]
    monitor = ki.Monitor(tmp_path, 2, 2, tokens_per_batch=tokens)
    prune = ki.IdeaPruneCallback(3, 1, 3, log_dir=monitor)
    keras.Model.fit(lm, x, y, batch_size=2, verbose=0, callbacks=[prune])
    events = Events(tmp_path)
    widths = [
        tag for tag in events.tags if tag.startswith("width/") and "mean" not in tag
    ]
    assert len(widths) == len(hidden)
    schedule = ki.CubicWidth(hidden[0], 3, 1, 3)
    for tag in widths:
        assert events.scalars(tag) == {s: schedule(s) for s in (2, 4, 6, 8)}
    flops = events.scalars("flops/train")
    cut = 6 * tokens * 3 * lm.backbone.hidden_dim * len(hidden) * (hidden[0] - 3)
    assert np.isclose((flops[4] - flops[2]) - (flops[8] - flops[6]), 2 * cut)


def test_refusals(data, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is not compiled with an optimizer"):
        monitor = ki.Monitor(tmp_path)
        monitor.set_model(residual_model())
        monitor.on_train_begin()
    with pytest.raises(ValueError, match="`log_dir` must be the path of a folder"):
        ki.IdeaPruneCallback(4, 2, 4, log_dir=tmp_path / "file")
