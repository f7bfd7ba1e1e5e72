"""Checkpoint files: complete or absent, the last few, with what was written."""

import random
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest

from keras_idea._callbacks.checkpoint import newest, saved_names, write
from keras_idea.errors import CheckpointError
from tests.support.full_disk import full_disk

ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "count": np.array(7, "int64"),
    "seed": np.array([1, 2**32 - 1], "uint32"),
}


def write_steps(folder, *steps, keep=3, arrays=ARRAYS):
    for step in steps:
        write(folder, arrays, {"step": step, "name": "ü"}, keep)


def steps(folder):
    return [int(name[-16:-12]) for name in saved_names(folder)]


def test_what_was_written_is_read(tmp_path):
    write_steps(tmp_path / "deep" / "folder", 5)
    saved = newest(tmp_path / "deep" / "folder")
    assert saved.facts == {"step": 5, "name": "ü"}
    assert saved.shapes == {name: array.shape for name, array in ARRAYS.items()}
    for name, array in ARRAYS.items():
        read = saved.array(name)
        assert read.dtype == array.dtype and read.tobytes() == array.tobytes()


def test_the_newest_is_the_last_one_written(tmp_path):
    """A second stage counts its steps from 0 again."""
    write_steps(tmp_path, 100, 200, 1, keep=2)
    assert steps(tmp_path) == [200, 1] and newest(tmp_path).facts["step"] == 1


@pytest.mark.parametrize("size", [0, 4, -3])
def test_a_damaged_one_is_named(tmp_path, size):
    write_steps(tmp_path, 1, 2)
    path = tmp_path / saved_names(tmp_path)[-1]
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=path.name):
        newest(tmp_path)
    path.unlink()
    assert newest(tmp_path).facts["step"] == 1


def test_a_full_disk_leaves_what_was_there(tmp_path):
    write_steps(tmp_path, 1, keep=1)
    with full_disk(4096), pytest.raises(OSError):
        write_steps(tmp_path, 2, keep=1, arrays={"big": np.zeros(10_000)})
    assert len(list(tmp_path.iterdir())) == 1 and steps(tmp_path) == [1]


WRITER = """
import pathlib, sys
import numpy as np
from keras_idea._callbacks.checkpoint import newest, write
folder = pathlib.Path(sys.argv[1])
saved = newest(folder)
step = 0 if saved is None else saved.facts["step"]
while True:
    step += 1
    arrays = {f"a{i}": np.full(2**17, step + i) for i in range(8)}
    write(folder, arrays, {"step": step}, keep=2)
    print(step, flush=True)
"""


@pytest.mark.daily()
def test_killed_while_it_writes(tmp_path):
    """Whenever that is, the newest is complete, and no earlier one is lost."""
    rng = random.Random(0)
    for _ in range(3):
        command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            done = int(process.stdout.readline())
            time.sleep(rng.uniform(0.0, 0.2))
            process.kill()
            done = max([done, *map(int, process.stdout.read().split())])
        saved = newest(tmp_path)
        step = saved.facts["step"]
        assert step in (done, done + 1)
        for i in range(8):
            assert (saved.array(f"a{i}") == step + i).all()
