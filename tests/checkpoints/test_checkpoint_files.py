"""Checkpoints as files: whole, verified, the last few, one file at a time."""

import gc
import json
import random
import subprocess
import sys
import time
import weakref

import ml_dtypes
import numpy as np
import pytest

from keras_idea.checkpoints.files import CheckpointFiles
from keras_idea.errors import CheckpointError
from tests.test_files import full_disk

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


def step_folders(folder):
    return sorted(path.name for path in folder.iterdir())


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


def test_nothing_is_there(tmp_path):
    assert CheckpointFiles(tmp_path / "none").newest() is None


def test_the_last_ones_are_kept(tmp_path):
    files = CheckpointFiles(tmp_path, keep=2)
    write(files, 1, 2, 30)
    assert step_folders(tmp_path) == ["step-00000002", "step-00000030"]
    assert files.newest().step == 30


def test_the_same_step_is_replaced(tmp_path):
    files = CheckpointFiles(tmp_path)
    write(files, 1, facts={"try": 1})
    write(files, 1, facts={"try": 2})
    assert files.newest().facts == {"try": 2}
    assert step_folders(tmp_path) == ["step-00000001"]


def test_no_more_than_a_file_is_held_at_once(tmp_path):
    """Arrays are asked for one after the other, and given up file by file."""
    held, most = [], []

    def read(i):
        gc.collect()
        most.append(sum(reference() is not None for reference in held))
        array = np.full(100, i, "float32")
        held.append(weakref.ref(array))
        return array

    files = CheckpointFiles(tmp_path, shard_bytes=800)
    files.write(1, [(f"a{i}", lambda i=i: read(i)) for i in range(8)], {})
    # Two fit into a file; the next is read before that file is written.
    assert max(most) <= 2
    shards = list((tmp_path / "step-00000001").glob("*.safetensors"))
    assert len(shards) == 4
    assert [files.newest().array(f"a{i}")[0] for i in range(8)] == list(range(8))


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def cut_off(path):
    path.write_bytes(path.read_bytes()[:-3])


def change_a_number(path):
    manifest = json.loads(path.read_text())
    manifest["facts"]["step"] = 99
    path.write_text(json.dumps(manifest))


DAMAGES = {
    "a byte flipped": ("arrays-00000.safetensors", flip_a_byte, "changed or cut off"),
    "cut off": ("arrays-00000.safetensors", cut_off, "changed or cut off"),
    "no arrays": ("arrays-00000.safetensors", lambda p: p.unlink(), "cannot be read"),
    "empty": (
        "arrays-00000.safetensors",
        lambda p: p.write_bytes(b""),
        "changed or cut off",
    ),
    "manifest flipped": ("manifest.json", flip_a_byte, "cannot be read|been changed"),
    "manifest edited": ("manifest.json", change_a_number, "has been changed"),
    "manifest cut off": ("manifest.json", cut_off, "cannot be read"),
    "no manifest": ("manifest.json", lambda p: p.unlink(), "cannot be read"),
    "manifest of a list": (
        "manifest.json",
        lambda p: p.write_text("[1]"),
        "has been changed",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_is_passed_over(tmp_path, name):
    file, damage, reason = DAMAGES[name]
    files = CheckpointFiles(tmp_path)
    write(files, 1, 2)
    damage(tmp_path / "step-00000002" / file)
    with pytest.warns(UserWarning, match=f"step-00000002 is damaged.*({reason})"):
        saved = files.newest()
    assert saved.step == 1
    np.testing.assert_array_equal(saved.array("matrix"), ARRAYS["matrix"])


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
    assert step_folders(tmp_path) == ["step-00000001"]
    assert files.newest().step == 1


WRITER = """
import sys
import numpy as np
from keras_idea.checkpoints.files import CheckpointFiles
files = CheckpointFiles(sys.argv[1], keep=2, shard_bytes=2**20)
newest = files.newest()
step = 0 if newest is None else newest.step
while True:
    step += 1
    arrays = [(f"a{i}", lambda i=i: np.full(2**17, step + i)) for i in range(8)]
    files.write(step, arrays, {})
    print(step, flush=True)
"""


def test_killed_while_it_writes(tmp_path):
    """Whenever that is: the newest is whole, and none that was done is lost."""
    rng = random.Random(0)
    for _ in range(6):
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
    assert step_folders(tmp_path) == ["step-00000001", "step-00000003"]
