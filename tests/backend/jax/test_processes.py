"""Two processes exchange texts, results and errors."""

import pytest

from tests.backend.jax.test_mesh import end, start

TALK = """
import pytest
from keras_idea import _processes as processes
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
def test_two_processes(tmp_path):
    ended = end(start(tmp_path, 2, program=("-c", TALK)))
    assert [status for status, _ in ended] == [0, 0], ended
