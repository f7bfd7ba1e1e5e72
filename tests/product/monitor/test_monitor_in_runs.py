"""Monitor over several fits, in a resumed run, and in a moved working directory."""

import copy

import keras
import pytest

import keras_idea as ki
from tests.support.events import Events
from tests.support.monitored import compiled

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def test_several_fits_in_a_relative_folder(data, tmp_path, monkeypatch):
    """The folder stays, although the working directory changes between two fits."""
    monkeypatch.chdir(tmp_path)
    model, monitor = compiled(), ki.Monitor("logs", update_every=4, neurons_every=4)
    prune = ki.IdeaPruneCallback(4, 2, 6)
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        model.fit(*data, callbacks=[prune, monitor], **FIT)
    events = Events(tmp_path / "logs")
    assert events.steps("loss") == [4, 8, 8, 12, 16, 16]
    assert events.scalars("width/ffn_0")[16] == 4
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

    def callbacks():
        watch = ki.Monitor(logs, update_every=2, neurons_every=4)
        return [ki.IdeaPruneCallback(4, 2, 20), watch]

    first = callbacks()
    with pytest.raises(Killed, match="now"):
        compiled().fit(x, y, epochs=3, callbacks=[Save(), *first, Kill()], **FIT)
    first[1].on_train_end()
    lost = Events(logs).scalars("loss")
    assert list(lost)[-1] >= 12
    model = keras.models.load_model(tmp_path / "half.keras")
    model.fit(x[::-1], y[::-1], epochs=2, callbacks=callbacks(), **FIT)
    shown = Events(logs).scalars("loss")
    assert list(shown) == list(range(2, 25, 2))
    assert [shown[step] == lost[step] for step in (2, 4, 6, 8)] == [True] * 4
    assert shown[10] != lost[10]  # other batches
