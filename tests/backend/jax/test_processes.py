"""Two processes exchange texts, results and errors."""

import os
import socket
import subprocess
import sys

import pytest

TALK = """
import pytest
from keras_idea import processes
from keras_idea.errors import ConfigError, TextError

processes.join()
own = processes.index()
assert processes.count() == 2 and processes.is_first() is (own == 0)
assert processes.exchange("ü" * own) == ["", "ü"]
assert processes.from_first(lambda: [own, processes.count()]) == [0, 1]
assert processes.on_each(lambda: own) == own
processes.check_same({"number": 3})
with pytest.raises(ConfigError, match="number"):
    processes.check_same({"number": own})


def fail_in_second():
    if own:
        raise TextError("no text")


def fail():
    raise ValueError("no value")


with pytest.raises(TextError, match="no text"):
    processes.on_each(fail_in_second)
with pytest.raises((ValueError, RuntimeError), match="no value"):
    processes.from_first(fail)
"""


@pytest.mark.daily()
def test_two_processes():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        address = f"localhost:{found.getsockname()[1]}"
    names = {"JOB_ADDRESSES": address, "NUM_PROCESSES": "2"}
    started = []
    for number in "01":
        told = {**names, "PROCESS_ID": number}
        told = {f"KERAS_DISTRIBUTION_{name}": value for name, value in told.items()}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", TALK],
                env={**os.environ, "PYTHONPATH": os.getcwd(), **told},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    errors = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
