"""Shared fixtures: the backend's name, seeds, and tiny regression problems."""

import keras
import numpy as np
import pytest


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
