"""Shared fixtures, and which tests run on which backend."""

import keras
import numpy as np
import pytest

from tests.programs import (  # noqa: F401
    pytest_runtest_protocol,
    pytest_sessionstart,
    pytest_terminal_summary,
)


def pytest_addoption(parser):
    """`--once`, which `make test` gives, as it runs the suite on each backend."""
    parser.addoption(
        "--once",
        action="store_true",
        help="tests marked `once` run on one backend alone: torch, or the one that "
        "the marker names. Else every test runs.",
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out, with --once, what another backend's process runs."""
    if not config.getoption("--once"):
        return
    own = keras.backend.backend()
    elsewhere = [item for item in items if _backend_of(item) not in (own, None)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if _backend_of(item) in (own, None)]


def _backend_of(item):
    """The one backend that a test runs on with --once; None: each."""
    if item.nodeid.startswith("tests/once/"):
        return "torch"
    marker = item.get_closest_marker("once")
    if marker is None:
        return None
    return marker.args[0] if marker.args else "torch"


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
