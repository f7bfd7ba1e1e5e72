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
