"""A lock ends with its process, however that ends."""

import os
import signal
import subprocess
import sys

import pytest

from keras_idea.files import locked
from keras_idea_cli.locks import is_locked

HOLD = """
import sys, time
from keras_idea.files import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path/lock."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.daily()
def test_held_by_another_process(holder, tmp_path):
    path = tmp_path / "lock"
    assert is_locked(path) is True
    with pytest.raises(BlockingIOError, match=f"^process {holder.pid} on "):
        with locked(path):
            pass
    assert is_locked(path) is True and path.exists()


@pytest.mark.daily()
def test_a_killed_process_leaves_the_file_and_no_lock(holder, tmp_path):
    path = tmp_path / "lock"
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert path.exists() and is_locked(path) is False
    with locked(path):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert not path.exists()


def test_inside_the_block_and_after_it(tmp_path):
    path = tmp_path / "lock"
    assert is_locked(path) is False and not path.exists()
    with pytest.raises(KeyError), locked(path):
        assert is_locked(path) is True
        raise KeyError
    assert is_locked(path) is False and not path.exists()
