"""Shared fixtures, and which tests run on which backend."""

import faulthandler
import gc

import keras
import numpy as np
import pytest

from tests.programs import (  # noqa: F401
    pytest_runtest_protocol,
    pytest_sessionstart,
    pytest_terminal_summary,
)
from tests.where import runs, unused


def pytest_addoption(parser):
    """`--once`, which `make test` gives, as it runs the suite on each backend."""
    parser.addoption(
        "--once",
        choices=("both", "alone", "shared"),
        help="what tests/where.py names runs on the backends it names only: all of "
        "this one's tests, those that no other runs, or those that others run too",
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out, with --once, what another process runs."""
    part = config.getoption("--once")
    if part is None:
        return
    if config.args == config.getini("testpaths"):
        lost = unused(item.nodeid for item in items)
        if lost:
            raise pytest.UsageError(f"tests/where.py names no test: {lost}")
    own = keras.backend.backend()
    mine = [item for item in items if runs(item.nodeid, own, part)]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(mine)])
    items[:] = mine


def pytest_collection_finish(session):
    """What the libraries hold is never garbage: looking through it took a seventh."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure():
    """A process that does not end after its tests says where it hangs, and ends."""
    faulthandler.dump_traceback_later(120, exit=True)


@pytest.fixture(autouse=True)
def fresh_keras():
    """The same random numbers and names in every test, whatever ran before."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)


@pytest.fixture(scope="session")
def data():
    """64 samples of 5 positions with 8 features, and a smooth target."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 5, 8)).astype("float32")
    y = np.sin(x[..., :1] * 2) + x[..., 1:2] * x[..., 2:3]
    return x, y.astype("float32")


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """The folder of one sound thing of each kind, to be damaged in copies."""
    from tests.malformed import make_all

    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_all(folder)
    return folder
