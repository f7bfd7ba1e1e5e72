"""Whose checkpoints a folder holds, and what a full disk leaves there."""

import contextlib

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import CheckpointError
from tests.support.full_disk import full_disk
from tests.support.helpers import residual_model, to_numpy

FIT = {"batch_size": 32, "verbose": 0, "shuffle": False}


def made(optimizer="sgd"):
    model = residual_model((8,))
    model.compile(optimizer, "mse")
    return model


def steps(folder):
    """Of the checkpoints in a folder, in the order of writing."""
    return [int(path.stem.split("-")[3]) for path in sorted(folder.glob("check*"))]


class TestWhose:
    def test_a_second_stage_with_a_new_optimizer(self, data, tmp_path):
        """It counts from 0; its checkpoints are the newest all the same."""
        model, checkpoint = made(), ki.Checkpoint(tmp_path, keep=2)
        model.fit(*data, epochs=3, callbacks=[checkpoint], **FIT)
        assert steps(tmp_path) == [4, 6]
        model.compile("adam", "mse")
        model.fit(*data, epochs=1, callbacks=[checkpoint], **FIT)
        assert steps(tmp_path) == [6, 2]
        fresh = made("adam")
        again = ki.Checkpoint(tmp_path)
        assert again.restore(fresh) == 1
        for ours, theirs in zip(fresh.variables, model.variables, strict=True):
            np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))
        fresh.compile("sgd", "mse")  # a process that has restored adds its own
        fresh.fit(*data, epochs=1, callbacks=[again], **FIT)
        assert steps(tmp_path) == [6, 2, 2]

    def test_a_run_that_did_not_restore_is_rejected_before_a_step(self, data, tmp_path):
        made().fit(*data, epochs=2, callbacks=[ki.Checkpoint(tmp_path)], **FIT)
        before = sorted(path.name for path in tmp_path.iterdir())
        model = made()
        with pytest.raises(CheckpointError, match=r"restore\(model\)"):
            model.fit(*data, callbacks=[ki.Checkpoint(tmp_path)], **FIT)
        assert model.optimizer.iterations == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    def test_two_runs_at_once(self, data, tmp_path):
        """Both began with an empty folder; the second finds out at its checkpoint."""
        one, other = ki.Checkpoint(tmp_path), ki.Checkpoint(tmp_path)
        second = made()

        def begin_the_other(epoch, logs):
            if epoch == 0:
                made().fit(*data, callbacks=[other], **FIT)

        begin = keras.callbacks.LambdaCallback(on_epoch_end=begin_the_other)
        with pytest.raises(CheckpointError, match=r"restore\(model\)"):
            second.fit(*data, epochs=2, callbacks=[begin, one], **FIT)
        assert steps(tmp_path) == [2]  # the other's is there still


def test_a_relative_folder_stays_where_it_was(data, tmp_path, monkeypatch):
    """Although a callback changes the working directory in mid-run."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    move = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: monkeypatch.chdir(tmp_path / "elsewhere")
    )
    checkpoint = ki.Checkpoint("saved")
    made().fit(*data, epochs=2, callbacks=[move, checkpoint], **FIT)
    assert steps(tmp_path / "saved") == [2, 4]
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert checkpoint.restore(made()) == 2


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="`folder`"):
        ki.Checkpoint(tmp_path / "file")


def test_a_checkpoint_that_cannot_be_written_ends_the_run(data, tmp_path):
    model, checkpoint = made(), ki.Checkpoint(tmp_path)

    def limit(epoch, logs):
        if epoch == 1:
            stack.enter_context(full_disk(1000))

    filled = keras.callbacks.LambdaCallback(on_epoch_end=limit)
    with contextlib.ExitStack() as stack:
        with pytest.raises(OSError):
            model.fit(*data, epochs=3, callbacks=[filled, checkpoint], **FIT)
    assert steps(tmp_path) == [2] and len(list(tmp_path.iterdir())) == 1
    assert ki.Checkpoint(tmp_path).restore(made()) == 1


class Says(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs.update(note="text", nothing=None, places=np.zeros(3))


def test_logs_that_are_no_numbers_are_not_kept(tmp_path, data):
    model, checkpoint = made(), ki.Checkpoint(tmp_path)
    model.fit(*data, epochs=2, callbacks=[Says(), checkpoint], verbose=0)
    assert set(checkpoint.history) == {"loss"} and len(checkpoint.history["loss"]) == 2


def test_a_list_of_callbacks_of_ones_own(tmp_path, data):
    """Keras tells it of no number of epochs."""
    model, checkpoint = made(), ki.Checkpoint(tmp_path)
    callbacks = keras.callbacks.CallbackList([checkpoint], True, model=model)
    model.fit(*data, epochs=2, callbacks=callbacks, verbose=0)
    assert ki.Checkpoint(tmp_path).restore(made()) == 2
