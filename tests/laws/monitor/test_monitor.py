"""The monitor: what TensorBoard reads in its files, against independent values."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.events import Events
from tests.support.helpers import (
    LossRecorder,
)
from tests.support.monitored import Importances, compiled

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


WIDTHS = {"ffn_0": ki.CubicWidth(16, 4, 2, 12), "ffn_1": ki.CubicWidth(12, 4, 2, 12)}


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
    prune = ki.IdeaPruneCallback(4, 2, 12)
    history = model.fit(
        x,
        y,
        epochs=3,
        validation_data=(x, y),
        callbacks=[seen, losses, prune, monitor],
        **FIT,
    )
    return Events(folder), seen.seen, losses.losses, history.history


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


def test_the_heat_map_shows_the_dead(run):
    images = run[0].images("neurons")
    assert list(images) == [3, 6, 9, 12, 14, 15, 18, 21, 24]
    grey = [(image == (222, 226, 230)).all(axis=-1).mean() for image in images.values()]
    assert grey[4] > grey[2] > 0.05 and grey[0] < 0.4
    assert images[24].shape[1] == 640


@pytest.mark.parametrize("ffn", [ki.PrunableGatedFFN])
def test_monitoring_changes_nothing(ffn, data, tmp_path):
    """The same weights to the last bit, though every step is read and written."""
    weights = []
    for watch in ([], [ki.Monitor(tmp_path, update_every=1, neurons_every=1)]):
        model = compiled(hidden_dims=(16,), ffn=ffn)
        prune = ki.IdeaPruneCallback(4, 2, 8)
        model.fit(*data, epochs=2, callbacks=[prune, *watch], **FIT)
        weights.append(model.get_weights())
    for with_monitor, without in zip(*weights, strict=True):
        np.testing.assert_array_equal(with_monitor, without)
    (name,) = (tag[6:] for tag in Events(tmp_path).tags if tag.startswith("churn/f"))
    shown = Events(tmp_path).scalars(f"width/{name}")
    schedule = ki.CubicWidth(16, 4, 2, 8)
    assert name.startswith("ffn_0") and len(shown) == 16
    assert shown == {step: schedule(step) for step in shown}
