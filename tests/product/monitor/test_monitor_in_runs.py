"""Monitor in further kinds of runs: several fits, a resumed one, other methods."""

import copy

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.events import Events
from tests.support.helpers import (
    residual_model,
)
from tests.support.monitored import compiled, flops_of_a_batch

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def test_several_fits_go_on(data, tmp_path):
    model = compiled()
    monitor = ki.Monitor(tmp_path, update_every=4, neurons_every=4)
    prune = ki.IdeaPruneCallback(4, 2, 6)
    for _ in range(3):
        model.fit(*data, callbacks=[prune, monitor], **FIT)
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

    first, watch = ki.IdeaPruneCallback(4, 2, 20), monitor()
    with pytest.raises(Killed, match="now"):
        compiled().fit(x, y, epochs=3, callbacks=[Save(), first, watch, Kill()], **FIT)
    watch._log.close()  # a flush leaves out what its thread has not taken
    lost = Events(logs).scalars("loss/train")
    assert list(lost)[-1] >= 12
    model = keras.models.load_model(tmp_path / "half.keras")
    second = ki.IdeaPruneCallback(4, 2, 20)
    model.fit(x[::-1], y[::-1], epochs=2, callbacks=[second, monitor()], **FIT)
    events = Events(logs)
    shown = events.scalars("loss/train")
    assert events.steps("loss/train") == list(range(2, 25, 2))
    assert [shown[step] == lost[step] for step in (2, 4, 6, 8)] == [True] * 4
    assert shown[10] != lost[10]  # other batches
    by_hand = 22 * flops_of_a_batch(16, 12) + 2 * flops_of_a_batch(4, 4)
    assert np.isclose(events.scalars("flops/train")[24], by_hand)


def test_refusals(data, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is not compiled with an optimizer"):
        monitor = ki.Monitor(tmp_path)
        monitor.set_model(residual_model())
        monitor.on_train_begin()
    with pytest.raises(ValueError, match="`log_dir` must be the path of a folder"):
        ki.Monitor(tmp_path / "file")
