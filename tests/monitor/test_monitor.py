"""The monitor: what TensorBoard reads in its files, against independent values."""

import copy
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.helpers import LossRecorder, residual_model, set_random_weights, to_numpy
from tests.monitor.events import Events

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch
RATE = ki.CosineDecay(0.02, 1e-3, 24, 2)
WIDTHS = {"ffn_0": ki.CubicWidth(16, 4, 2, 12), "ffn_1": ki.CubicWidth(12, 4, 2, 12)}


def compiled(seed=0, hidden_dims=(16, 12), optimizer=None, **kwargs):
    keras.utils.set_random_seed(seed)
    model = residual_model(hidden_dims)
    optimizer = optimizer or keras.optimizers.AdamW(RATE)
    model.compile(optimizer, "mse", **kwargs)
    return model


def flops_of_a_batch(*hidden_dims, tokens=8 * 5):
    """By hand: three kernels of 8 x h an FFN and a head of 8 x 1."""
    return 6 * tokens * (sum(3 * 8 * h for h in hidden_dims) + 8)


class Importances(keras.callbacks.Callback):
    """Importance and mask of every FFN at some steps, between two batches."""

    def __init__(self, steps):
        super().__init__()
        self.steps, self.seen = steps, {}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        step = 8 * self.epoch + batch
        if step in self.steps:
            self.seen[step] = {
                ffn.name: (to_numpy(ffn.importance()), to_numpy(ffn.mask))
                for ffn in ki.find_ffns(self.model)
            }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 24 steps: 16 and 12 neurons become 4 from step 14 on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5, 8)).astype("float32")
    y = np.sin(x[..., :1])
    folder = tmp_path_factory.mktemp("logs")
    model, losses = compiled(), LossRecorder()
    seen = Importances([3, 6, 9, 12, 14])
    monitor = ki.Monitor(folder, update_every=2, neurons_every=3, peak_flops=1e9)
    prune = ki.IdeaPruneCallback(4, 2, 12, log_dir=monitor)
    history = model.fit(
        x,
        y,
        epochs=3,
        validation_data=(x, y),
        callbacks=[seen, losses, prune],
        **FIT,
    )
    return Events(folder), seen.seen, losses.losses, history.history


def test_every_number_has_its_charts(run):
    events, *_ = run
    layers = [f"{kind}/ffn_{i}" for kind in ("width", "sparsity") for i in (0, 1)]
    assert events.tags >= {
        *layers,
        *("width/mean", "sparsity/mean", "churn/ffn_0", "churn/ffn_1", "churn/mean"),
        *("loss/train", "loss/validation", "learning_rate", "flops/train"),
        *("flops/utilisation", "speed/tokens_per_second", "speed/steps_per_second"),
        *("speed/minutes_left", "memory/host"),
    }


def test_loss_is_the_mean_since_the_last_point(run):
    events, _, losses, history = run
    shown = events.scalars("loss/train")
    assert list(shown) == list(range(2, 25, 2))
    for step, loss in shown.items():
        assert np.isclose(loss, np.mean(losses[step - 2 : step]), rtol=1e-4)
    assert np.allclose(
        [events.scalars("loss/validation")[step] for step in (8, 16, 24)],
        history["val_loss"],
    )


def test_learning_rate_is_the_one_of_the_step(run):
    for step, rate in run[0].scalars("learning_rate").items():
        assert np.isclose(rate, float(RATE(step - 1)))


def test_widths_are_the_schedule_s(run):
    events, *_ = run
    for step, width in events.scalars("width/mean").items():
        assert width == np.mean([schedule(step) for schedule in WIDTHS.values()])
    for name, schedule in WIDTHS.items():
        shown = events.scalars(f"width/{name}")
        assert list(shown) == [3, 6, 9, 12, 14, 15, 18, 21, 24]  # 14: the last wide one
        assert shown == {step: schedule(step) for step in shown}
        for step, sparsity in events.scalars(f"sparsity/{name}").items():
            assert np.isclose(sparsity, 1 - schedule(step) / schedule.full_dim)


def test_churn_is_what_numpy_says(run):
    events, seen, *_ = run
    for name in WIDTHS:
        tops = []
        for importance, mask in (entry[name] for entry in seen.values()):
            ranked = np.where(mask > 0, importance, -np.inf)
            tops.append(set(np.argsort(-ranked, kind="stable")[:4]))
        expected = [len(a ^ b) for a, b in zip(tops, tops[1:], strict=False)]
        shown = events.scalars(f"churn/{name}")
        assert list(shown) == [6, 9, 12, 14]
        assert list(shown.values()) == expected
    assert sum(events.scalars("churn/mean").values()) > 0


def test_histograms_are_of_the_living(run):
    events, seen, *_ = run
    for name in WIDTHS:
        shown = events.histograms(f"importance_log10/{name}")
        assert list(shown) == list(seen)
        for step, histogram in shown.items():
            importance, mask = seen[step][name]
            values = np.log10(importance[mask > 0])
            assert sum(histogram.bucket) == histogram.num == len(values)
            assert np.isclose(histogram.min, values.min(), atol=1e-5)
            assert np.isclose(histogram.max, values.max(), atol=1e-5)


def test_flops_fall_with_the_compaction(run):
    for step, flops in run[0].scalars("flops/train").items():
        expected = min(step, 14) * flops_of_a_batch(16, 12)
        expected += max(step - 14, 0) * flops_of_a_batch(4, 4)
        assert np.isclose(flops, expected)


def test_utilisation_is_speed_times_work(run):
    events, *_ = run
    tokens = events.scalars("speed/tokens_per_second")
    steps = events.scalars("speed/steps_per_second")
    for step, used in events.scalars("flops/utilisation").items():
        widths = (16, 12) if step <= 14 else (4, 4)
        assert np.isclose(tokens[step], 40 * steps[step], rtol=1e-5)
        assert np.isclose(used, flops_of_a_batch(*widths) * steps[step] / 1e9)
    left = events.scalars("speed/minutes_left")
    assert len(steps) == len(left) == 12
    for step in left:
        assert np.isclose(left[step], (24 - step) / steps[step] / 60, rtol=1e-4)


def test_the_heat_map_shows_the_dead(run):
    images = run[0].images("neurons")
    assert list(images) == [3, 6, 9, 12, 14, 15, 18, 21, 24]
    grey = [(image == (222, 226, 230)).all(axis=-1).mean() for image in images.values()]
    assert grey[4] > grey[2] > 0.05 and grey[0] < 0.4
    assert images[24].shape[1] == 640


def test_memory_is_this_process_s(run):
    resource = pytest.importorskip("resource")  # not on Windows
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB but for macOS
    most *= 1e-6 if sys.platform == "darwin" else 1024e-6
    shown = run[0].scalars("memory/host").values()
    assert all(most / 4 < mb <= 1.01 * most for mb in shown)


def test_monitoring_changes_nothing(data, tmp_path):
    """The same weights to the last bit, though every step is read and written."""
    weights = []
    for log_dir in (None, ki.Monitor(tmp_path, update_every=1, neurons_every=1)):
        model = compiled(hidden_dims=(16,))
        prune = ki.IdeaPruneCallback(4, 2, 8, log_dir=log_dir)
        model.fit(*data, epochs=2, callbacks=[prune], **FIT)
        weights.append(model.get_weights())
    for with_monitor, without in zip(*weights, strict=True):
        np.testing.assert_array_equal(with_monitor, without)


def test_it_does_not_sync_at_every_batch(data, tmp_path):
    """On jax, touching the model costs; a point must not."""
    syncs = []

    class Counting(keras.Model):
        def jax_state_sync(self):
            syncs.append(1)
            super().jax_state_sync()

    def fitted(folder):
        syncs.clear()
        graph = residual_model()
        model = Counting(graph.input, graph.output)
        model.compile("adam", "mse")
        log_dir = folder and ki.Monitor(folder, update_every=1, neurons_every=1000)
        prune = ki.IdeaPruneCallback(4, 0, 30, log_dir=log_dir)
        x, y = (np.tile(array, (4, 1, 1)) for array in data)
        model.fit(x, y, callbacks=[prune], **FIT)  # 32 steps
        return len(syncs)

    # At the begin and end of the fit and the epoch, and once for the samples.
    assert fitted(tmp_path) - fitted(None) <= 12


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
    first._monitor._log.flush()  # what its thread does every ten seconds
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


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras has no such thing on torch"
)
def test_several_steps_an_execution(data, tmp_path):
    model = compiled(steps_per_execution=4)
    monitor = ki.Monitor(tmp_path, update_every=3, neurons_every=6)
    prune = ki.IdeaPruneCallback(4, 2, 8, log_dir=monitor)
    losses = LossRecorder()
    model.fit(*data, epochs=3, callbacks=[prune, losses], **FIT)
    events = Events(tmp_path)
    assert events.steps("loss/train") == [4, 8, 12, 16, 20, 24]
    assert events.steps("width/ffn_0") == [8, 12, 20, 24]
    # After the execution in which step 10 was.
    flops = events.scalars("flops/train")
    assert np.isclose(flops[12], 12 * flops_of_a_batch(16, 12))
    added = flops_of_a_batch(4, 4) * 12
    assert np.isclose(flops[24] - flops[12], added, rtol=1e-5)
    width = ki.CubicWidth(16, 4, 2, 8)
    assert events.scalars("width/ffn_0") == {s: width(s) for s in (8, 12, 20, 24)}


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


def test_alone_in_the_list_of_callbacks(data, tmp_path):
    """After the pruning callback, and with a metric and a callback of Keras's own."""
    model = compiled(metrics=["mae"])
    monitor = ki.Monitor(tmp_path, update_every=2, neurons_every=2)
    prune = ki.IdeaPruneCallback(4, 2, 12)
    model.fit(*data, epochs=3, callbacks=[prune, monitor], validation_data=data, **FIT)
    events = Events(tmp_path)
    for name, schedule in WIDTHS.items():
        shown = events.scalars(f"width/{name}")
        assert list(shown) == list(range(2, 25, 2))
        assert shown == {step: schedule(step) for step in shown}
    assert events.steps("width/mean") == list(range(2, 25, 2))
    assert events.steps("metrics/mae") == events.steps("loss/train")
    assert events.steps("metrics/val_mae") == [8, 16, 24]
    flops = events.scalars("flops/train")[24]
    by_hand = 14 * flops_of_a_batch(16, 12) + 10 * flops_of_a_batch(4, 4)
    assert np.isclose(flops, by_hand)


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


def test_a_converted_kerashub_model(tmp_path):
    pytest.importorskip("keras_hub")
    from tests.hub_models import batch, randomize, tiny_lm

    lm = ki.make_prunable(tiny_lm("llama3"))
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
