"""The monitor: what TensorBoard reads in its files, against independent values."""

import numpy as np
import pytest

import keras_idea as ki
from keras_idea._callbacks.monitor import _LINE, _PRUNED, heat_map
from tests.support.events import Events
from tests.support.monitored import Importances, compiled

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch
WIDTHS = {"ffn_0": ki.CubicWidth(16, 4, 2, 12), "ffn_1": ki.CubicWidth(12, 4, 2, 12)}
READ = [3, 6, 8, 9, 12, 15, 16, 18, 21, 24]  # every third, and when an epoch ends


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 24 steps: 16 and 12 neurons become 4 from step 14 on."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5, 8)).astype("float32")
    y = np.sin(x[..., :1])
    folder = tmp_path_factory.mktemp("logs")
    model, seen = compiled(), Importances(READ)
    callbacks = [
        seen,
        ki.IdeaPruneCallback(4, 2, 12),
        ki.Monitor(folder, update_every=2, neurons_every=3),
    ]
    fit = {"epochs": 3, "validation_data": (x, y), "callbacks": callbacks, **FIT}
    history = model.fit(x, y, **fit).history
    return Events(folder), seen.seen, history


def test_logs(run):
    events, _, history = run
    shown = events.scalars("loss")
    assert list(shown) == list(range(2, 25, 2))
    assert np.allclose([shown[step] for step in (8, 16, 24)], history["loss"])
    shown = events.scalars("val_loss")
    assert np.allclose([shown[step] for step in (8, 16, 24)], history["val_loss"])


def test_widths_are_the_schedule_s(run):
    for step, width in run[0].scalars("width").items():
        assert width == np.mean([schedule(step) for schedule in WIDTHS.values()])
    for name, schedule in WIDTHS.items():
        shown = run[0].scalars(f"width/{name}")
        assert shown == {step: schedule(step) for step in READ}


def test_churn_is_what_numpy_says(run):
    events, seen, _ = run
    for name in WIDTHS:
        tops = []
        for step in (3, 6, 9, 12):
            importance, mask = seen[step][name]
            ranked = np.where(mask > 0, importance, -np.inf)
            tops.append(set(np.argsort(-ranked, kind="stable")[:4]))
        shown = events.scalars(f"churn/{name}")
        assert list(shown) == READ[1:]
        assert shown[24] == 0  # all that are left are the most important ones
        assert shown[6] == len(tops[0] ^ tops[1])
        assert shown[12] == len(tops[2] ^ tops[3])
    assert sum(events.scalars("churn/mean").values()) > 0


def test_the_heat_map_shows_what_was_pruned(run):
    images = run[0].images("neurons")
    assert list(images) == [8, 16, 24]
    gray = [(image == _PRUNED).all(axis=-1).mean() for image in images.values()]
    assert gray[0] < gray[1] < gray[2]


def test_pruned_units_are_on_top_and_from_their_step_on():
    levels = np.array([[1, 128, 255], [0, 1, 255]], "uint8")
    pixels = heat_map({"one": levels, "other": levels}, [10, 20], 0)
    assert pixels.shape == (2 * (240 + _LINE), 640, 3) and pixels.dtype == np.uint8
    for place in (0, 240 + _LINE):
        band = pixels[place + _LINE : place + _LINE + 240]
        gray = (band == _PRUNED).all(axis=-1)
        assert gray[:60, 321:].all() and not gray[:, :319].any()
        assert not gray[60:].any() and (band[-1] == (37, 52, 148)).all()


@pytest.mark.parametrize("ffn", [ki.PrunableGatedFFN])
def test_monitoring_changes_nothing(ffn, data, tmp_path):
    """The same weights to the last bit, though every step is read and written."""
    weights = []
    for more in ([], [ki.Monitor(tmp_path, update_every=1, neurons_every=1)]):
        model = compiled(hidden_dims=(16,), ffn=ffn)
        prune = ki.IdeaPruneCallback(4, 2, 8)
        model.fit(*data, epochs=2, callbacks=[prune, *more], **FIT)
        weights.append(model.get_weights())
    for with_monitor, without in zip(*weights, strict=True):
        np.testing.assert_array_equal(with_monitor, without)
    schedule = ki.CubicWidth(16, 4, 2, 8)
    (name,) = (tag for tag in Events(tmp_path).tags if tag.startswith("width/"))
    shown = Events(tmp_path).scalars(name)
    assert shown == {step: schedule(step) for step in range(1, 17)}
