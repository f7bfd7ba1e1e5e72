"""Checkpoints as files: whole, verified, the last few, one file at a time."""

import random
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest

from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.errors import CheckpointError
from tests.support.full_disk import full_disk

ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3),
    "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "count": np.array(7, "int64"),
    "seed": np.array([1, 2**32 - 1], "uint32"),
}


def lazily(arrays):
    return [(name, lambda a=array: a) for name, array in arrays.items()]


def write(files, *steps, arrays=ARRAYS, facts=None):
    for step in steps:
        files.write(step, lazily(arrays), {"step": step} if facts is None else facts)


def saved(folder):
    """(place in the order of writing, step) of each; nothing else is there."""
    names = sorted(path.name.split("-") for path in folder.iterdir())
    return [(int(place), int(step)) for _, place, _, step, _ in names]


def test_what_was_written_is_read(tmp_path):
    files = CheckpointFiles(tmp_path / "deep" / "folder")
    write(files, 5, facts={"width": [8, 4], "name": "ü"})
    saved = files.newest()
    assert saved.step == 5 and saved.facts == {"width": [8, 4], "name": "ü"}
    assert saved.names == list(ARRAYS)
    for name, array in ARRAYS.items():
        read = saved.array(name)
        assert read.dtype == array.dtype and saved.shape(name) == array.shape
        assert read.tobytes() == array.tobytes()


def test_the_newest_is_the_last_one_written(tmp_path):
    """Whatever its step: a second stage counts from 0 again."""
    files = CheckpointFiles(tmp_path, keep=2)
    write(files, 100, 200, 1)
    assert saved(tmp_path) == [(2, 200), (3, 1)] and files.newest().step == 1
    again = CheckpointFiles(tmp_path, keep=2)
    write(again, 1, facts={"try": 2})
    assert saved(tmp_path) == [(3, 1), (4, 1)] and again.newest().facts == {"try": 2}


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-3])


DAMAGES = {
    "a byte flipped": ("arrays-00000.safetensors", flip_a_byte, "changed or cut off"),
    "cut off": ("arrays-00000.safetensors", cut_off, "changed or cut off"),
    "manifest flipped": ("manifest.json", flip_a_byte, "cannot be read|been changed"),
    "manifest cut off": ("manifest.json", cut_off, "cannot be read"),
    "no manifest": ("manifest.json", lambda p: p.unlink(), "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_passed_over(tmp_path, name):
    file, damage, reason = DAMAGES[name]
    files = CheckpointFiles(tmp_path)
    write(files, 1, 2)
    newest = files.names()[-1]
    damage(tmp_path / newest / file)
    with pytest.warns(UserWarning, match=f"{newest} is damaged.*({reason})"):
        whole = files.newest()
    assert whole.step == 1
    np.testing.assert_array_equal(whole.array("matrix"), ARRAYS["matrix"])


@pytest.mark.filterwarnings("ignore:The checkpoint")
def test_all_damaged_is_no_new_beginning(tmp_path):
    files = CheckpointFiles(tmp_path)
    write(files, 1, 2)
    for folder in tmp_path.iterdir():
        flip_a_byte(folder / "arrays-00000.safetensors")
    with pytest.raises(CheckpointError, match="All checkpoints .* are damaged"):
        files.newest()


def test_a_full_disk_leaves_what_was_there(tmp_path):
    files = CheckpointFiles(tmp_path, keep=1)
    write(files, 1)
    with full_disk(4096), pytest.raises(OSError, match="File too large"):
        write(files, 2, arrays={"big": np.zeros(10_000)})
    assert saved(tmp_path) == [(1, 1)]
    assert files.newest().step == 1


WRITER = """
import sys
import numpy as np
from keras_idea.callbacks.checkpoint.files import CheckpointFiles
files = CheckpointFiles(sys.argv[1], keep=2, shard_bytes=2**20)
newest = files.newest()
step = 0 if newest is None else newest.step
while True:
    step += 1
    arrays = [(f"a{i}", lambda i=i: np.full(2**17, step + i)) for i in range(8)]
    files.write(step, arrays, {})
    print(step, flush=True)
"""


@pytest.mark.daily()
def test_killed_while_it_writes(tmp_path):
    """Whenever that is: the newest is whole, and none that was done is lost."""
    rng = random.Random(0)
    for _ in range(3):
        command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            done = int(process.stdout.readline())
            time.sleep(rng.uniform(0.0, 0.2))
            process.kill()
            done = max([done, *map(int, process.stdout.read().split())])
        newest = CheckpointFiles(tmp_path).newest()
        assert newest.step in (done, done + 1)
        for i in range(8):
            assert (newest.array(f"a{i}") == newest.step + i).all()


def test_leftovers_of_a_killed_process_are_no_checkpoints(tmp_path):
    files = CheckpointFiles(tmp_path)
    write(files, 1)
    (tmp_path / ".tmp-123-2").mkdir()
    (tmp_path / ".tmp-123-2" / "arrays-00000.safetensors").write_bytes(b"half")
    assert files.newest().step == 1
    write(files, 3)
    assert saved(tmp_path) == [(1, 1), (2, 3)]
