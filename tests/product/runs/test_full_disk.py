"""`keras-idea train` and `export` on a disk that is full, or fills up meanwhile."""

import os
import pathlib
import subprocess
import sys

import pytest

import keras_idea as ki
from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train.disk_estimate import results_bytes
from keras_idea.lm.runs.train.prepare import prepare
from tests.support import ROOT
from tests.support.helpers import fill
from tests.support.hub_models import tiny_lm
from tests.support.tiny_run import CONFIG, write_inputs
from tests.support.with_tokenizer import with_tokenizer

RUN = CONFIG.replace("recover_steps = 5", "recover_steps = 1")
RUN += "compare_from_scratch = false\n"
HUB = RUN.replace("model_dim = 16", "model_dim = 16\nhub = 'llama3'")


@pytest.fixture
def disk(small_disk, monkeypatch):
    monkeypatch.chdir(small_disk)
    write_inputs(small_disk, RUN)
    return small_disk


def refused(capsys, *words):
    """Status 1 and one line with these words."""
    assert main(["train", "tiny.toml"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("keras-idea: ") and error.count("\n") == 1
    for word in words:
        assert word in error
    return error


def test_full_at_the_beginning(disk, capsys):
    """Before the first step; with room the same command begins."""
    ballast = fill(disk, leave=2**19)
    refused(capsys, "no room for a checkpoint and the results", "0.5 MB free of the 1.")
    assert not (disk / "runs/tiny/metrics.csv").exists()
    ballast.unlink()
    assert main(["train", "tiny.toml"]) == 0
    assert (
        "No checkpoint yet in runs/tiny: starting at step 0" in capsys.readouterr().out
    )


def test_no_room_for_a_folder(disk, capsys):
    fill(disk, leave=0)
    error = refused(
        capsys, "cannot be written: No space left on device. Received: fold"
    )
    assert "runs/tiny" in error
    assert not (disk / "runs").exists()


def test_filled_before_the_end(disk, capsys, monkeypatch):
    """The last checkpoint is there; with room again the rest is done."""
    before = ki.Checkpoint.on_epoch_end

    def filling(checkpoint, epoch, logs=None):
        before(checkpoint, epoch, logs)
        if epoch == 1:
            fill(disk, leave=2**17)

    with monkeypatch.context() as patch:
        patch.setattr(ki.Checkpoint, "on_epoch_end", filling)
        refused(capsys, "no room for narrow.keras", "0.1 MB free of the 1.")
    names = sorted(path.name for path in (disk / "runs/tiny").iterdir())
    assert names == ["checkpoints", "config.toml", "metrics.csv"]
    refused(capsys, "no room for narrow.keras")  # nothing is trained again for it
    (disk / "ballast").unlink()
    assert main(["train", "tiny.toml"]) == 0
    assert "Resuming at step 8 of 8" in capsys.readouterr().out
    assert (disk / "runs/tiny/narrow.keras").exists()


# The whole process: HDF5, which writes a preset's weights, would end it when it exits.
FILLED = """
import sys
from pathlib import Path
import keras_idea as ki
from keras_idea.lm.cli import main
from tests.support.helpers import fill
before = ki.Checkpoint.on_epoch_end
def filling(checkpoint, epoch, logs=None):
    before(checkpoint, epoch, logs)
    if epoch == 1:
        fill(Path(), leave=20_000)
ki.Checkpoint.on_epoch_end = filling
sys.exit(main(["train", "tiny.toml"]))
"""


def test_no_room_for_a_preset(disk):
    write_inputs(disk, HUB)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", FILLED]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 1, found.stderr
    assert "keras-idea: The disk has no room for preset. Received" in found.stderr
    assert "Traceback" not in found.stderr and "h5py" not in found.stderr


def test_no_room_for_an_export(disk, capsys):
    lm = with_tokenizer(tiny_lm("llama3", num_layers=1, vocabulary_size=261), "llama3")
    lm.save_to_preset(str(disk / "preset"))
    fill(disk, leave=2**13)
    assert main(["export", "preset", "--preset", "narrow"]) == 2
    error = capsys.readouterr().err
    assert "'narrow' cannot be written: [Errno 28] No space left on device" in error
    assert not (disk / "narrow").exists()


@pytest.mark.parametrize("text", [RUN, HUB], ids=["decoder", "hub"])
def test_the_estimate_of_the_results(tmp_path, monkeypatch, text):
    """Enough for what a run leaves, and not twice as much of a model of some size."""
    monkeypatch.chdir(tmp_path)
    text = text.replace("model_dim = 16", "model_dim = 128")
    write_inputs(tmp_path, text)
    assert main(["train", "tiny.toml"]) == 0
    left = sum(f.stat().st_size for f in pathlib.Path("runs").rglob("*") if f.is_file())
    run = prepare(parse_config(text), RunFolder("runs/other"))
    assert left < results_bytes(run) < 2 * left + 2**20
