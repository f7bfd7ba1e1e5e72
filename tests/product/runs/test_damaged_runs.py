"""`keras-idea train` goes on with a run whose files are damaged, or says why not.

One run is stopped with two checkpoints; each test damages a copy of its folder in one
way and gives the same command again. What it ends with is what the run that nobody
stopped ended with.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea.models  # noqa: F401  its layers are in the saved model
from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.lm.cli import main
from tests.support import ROOT
from tests.support.compile_cache import kept_compilations
from tests.support.tiny_run import CONFIG, write_inputs

# Two intervals wide, pruning in the third, and two narrow ones.
RUN = CONFIG.replace("num_layers = 2", "num_layers = 1")
RUN = RUN.replace("prune_steps = 3", "prune_steps = 2")
RUN = RUN.replace("recover_steps = 5", "recover_steps = 4")
RUN = RUN.replace("validate_every = 4", "validate_every = 2")
RUN = RUN.replace("tokens = 20", "tokens = 4") + "compare_from_scratch = false\n"
RUN += "measure = false\n"
CHECKPOINTS = "checkpoints/pruned"
BEFORE, NEWEST = 6, 8  # the steps of the two checkpoints
BACKEND = keras.backend.backend()


class Stopped(BaseException):
    """The process is gone."""


@pytest.fixture(scope="module", autouse=True)
def compiled_at_most_once(tmp_path_factory):
    """All runs are alike: jax keeps what it compiles, tensorflow goes without."""
    with kept_compilations(tmp_path_factory.mktemp("compiled")):
        if BACKEND == "tensorflow":
            run_eagerly(True)
        yield
        if BACKEND == "tensorflow":
            run_eagerly(False)


def run_eagerly(eagerly):
    import tensorflow

    tensorflow.config.run_functions_eagerly(eagerly)


def train(folder):
    """The exit status of the command in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return main(["train", "tiny.toml"])


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of the run that nobody stopped."""
    folder = tmp_path_factory.mktemp("straight")
    write_inputs(folder, RUN)
    assert train(folder) == 0
    return folder / "runs/tiny"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The run's folder when its process is gone after the checkpoint of step 8."""
    folder = tmp_path_factory.mktemp("stopped")
    write_inputs(folder, RUN)

    def stop(callback, epoch, logs=None):
        if epoch == 4:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_idea.lm.runs.train.recorder.ShortBar.on_epoch_end", stop)
        with pytest.raises(Stopped):
            train(folder)
    assert [*saved(folder)] == [BEFORE, NEWEST]
    return folder


@pytest.fixture
def unfinished(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "copy")


def saved(folder):
    """The paths of the checkpoints by their steps."""
    files = CheckpointFiles(folder / "runs/tiny" / CHECKPOINTS)
    paths = (files.folder / name for name in files.names())
    return {int(path.name.split("-")[3]): path for path in paths}


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def assert_equals(folder, straight):
    """Metrics and weights, bit for bit."""
    run = folder / "runs/tiny"
    metrics = (straight / "metrics.csv").read_text()
    assert metrics.count("\n") == 11
    assert (run / "metrics.csv").read_text() == metrics
    weights = [
        keras.models.load_model(f / "narrow.keras").get_weights()
        for f in (run, straight)
    ]
    for found, expected in zip(*weights, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not (run / "checkpoints").exists()


ARRAYS = "arrays-00000.safetensors"
DAMAGES = {
    "arrays cut off": (ARRAYS, cut_off, "changed or cut off"),
    "a byte of the arrays flipped": (ARRAYS, flip_a_byte, "changed or cut off"),
    "arrays missing": (ARRAYS, pathlib.Path.unlink, "cannot be read"),
    "manifest cut off": ("manifest.json", cut_off, "manifest.json cannot be read"),
    "a byte of the manifest flipped": (
        "manifest.json",
        flip_a_byte,
        "manifest.json (has been changed|cannot be read)",
    ),
    "manifest missing": (
        "manifest.json",
        pathlib.Path.unlink,
        "manifest.json cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_one_interval_is_lost(unfinished, straight, capsys, name):
    file, damage, reason = DAMAGES[name]
    newest = saved(unfinished)[NEWEST]
    damage(newest / file)
    with pytest.warns(UserWarning, match=f"{newest.name} is damaged.*{reason}"):
        assert train(unfinished) == 0
    assert "Resuming at step 6 of 10" in capsys.readouterr().out
    assert_equals(unfinished, straight)


def test_metrics_are_written_anew(unfinished, straight, capsys):
    (unfinished / "runs/tiny/metrics.csv").unlink()
    assert train(unfinished) == 0
    assert "Resuming at step 8 of 10" in capsys.readouterr().out
    assert_equals(unfinished, straight)


def contents(folder):
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def assert_refused(folder, capsys, *words):
    """Status 2 and one clear message; every file is as it was."""
    before = contents(folder)
    assert train(folder) == 2
    message = capsys.readouterr().err
    assert message.startswith("keras-idea: ") and "Traceback" not in message
    for word in words:
        assert word in message
    assert contents(folder) == before


@pytest.mark.filterwarnings("ignore:The checkpoint")
def test_all_checkpoints_damaged(unfinished, capsys):
    for place in (unfinished / "runs/tiny" / CHECKPOINTS).iterdir():
        flip_a_byte(place / ARRAYS)
    assert_refused(
        unfinished, capsys, "All checkpoints in", CHECKPOINTS, "Restore one from a copy"
    )


@pytest.mark.parametrize(
    "damage, words",
    [
        (cut_off, ["config is damaged", "config.toml", "--overwrite"]),
        (lambda p: p.write_bytes(b"\xff\xfe"), ["config is damaged", "config.toml"]),
        (lambda p: p.write_text(""), ["unfinished run of another config"]),
        (pathlib.Path.unlink, ["is no run folder", "'checkpoints'", "--output"]),
    ],
    ids=["cut off", "no text", "empty", "missing"],
)
def test_the_config_of_the_run_damaged(unfinished, capsys, damage, words):
    damage(unfinished / "runs/tiny/config.toml")
    assert_refused(unfinished, capsys, *words)


# A file may grow to so many bytes; what is written beyond is an OSError, as on a disk
# that is full. Only a checkpoint is so large.
FULL_DISK = """
import resource, sys
from keras_idea.lm.cli import main
from tests.product.runs import test_damaged_runs as module
if module.BACKEND == "tensorflow":
    module.run_eagerly(True)
from keras_idea.lm.runs.train.recorder import Recorder, ShortBar
sys.stdout.reconfigure(line_buffering=True)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
shown = ShortBar.on_epoch_end
def full(callback, epoch, logs=None):
    if epoch == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    shown(callback, epoch, logs)
ShortBar.on_epoch_end = full
sys.exit(main(["train", "tiny.toml"]))
"""


def test_a_full_disk(straight, tmp_path, capsys):
    """The run ends and says so; the same command then loses little."""
    write_inputs(tmp_path, RUN)
    found = subprocess.run(
        [sys.executable, "-c", FULL_DISK],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1, found.stderr
    assert "The checkpoint after epoch 4 cannot be written" in found.stderr
    assert "File too large" in found.stderr and "Traceback" not in found.stderr
    folder = tmp_path / "runs/tiny/checkpoints/pruned"
    assert f"Received: folder={str(folder)!r}, with " in found.stderr
    assert [*saved(tmp_path)][-1] == BEFORE
    assert train(tmp_path) == 0
    assert "Resuming at step 6 of 10" in capsys.readouterr().out
    assert_equals(tmp_path, straight)
