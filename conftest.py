"""Shared fixtures, and which tests a process runs."""

import faulthandler
import gc
import os
import subprocess

import tests  # noqa: F401, before Keras, whose backends read what it sets

# isort: split
import hypothesis
import keras
import numpy as np
import pytest

from tests.support.older_keras import batches_have_losses_of_their_own
from tests.support.seconds import (  # noqa: F401
    pytest_runtest_protocol,
    pytest_sessionfinish,
)
from tests.support.selection import runs_daily

batches_have_losses_of_their_own()
# The same examples in every run: what passes once passes again.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")
if keras.backend.backend() == "torch":
    import torch

    # On a GPU convolutions of float32 would be computed in TF32.
    torch.backends.cudnn.allow_tf32 = False


def pytest_addoption(parser):
    """`--daily`, which `make test` gives: without it every test runs."""
    parser.addoption(
        "--daily",
        action="store_true",
        help="only what `make test` runs on this backend: tests/support/selection.py",
    )


def pytest_collection_modifyitems(config, items):
    """Leaves out, with --daily, what another process runs, or a longer run."""
    if not config.getoption("--daily"):
        return
    mine, others = [], []
    for item in items:
        (mine if runs_daily(item) else others).append(item)
    config.hook.pytest_deselected(items=others)
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


@pytest.fixture
def small_disk(tmp_path):
    """The folder of a disk of 4 MiB; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.name != "posix" or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="session")
def sound(tmp_path_factory):
    """The folder of one sound thing of each kind, to be damaged in copies."""
    from tests.support.malformed import make_all

    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        make_all(folder)
    return folder
