"""What the chains of blocks are given."""

import numpy as np
import pytest

from tests.support.block_chains import WIDTH


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 6, WIDTH)).astype("float32")
    return x, rng.standard_normal((10, 6, 5)).astype("float32")


@pytest.fixture
def x():
    """Of few directions: what is cut can be told by what stays."""
    rng = np.random.default_rng(3)
    spread = rng.standard_normal((24, 6, 4)) @ rng.standard_normal((4, WIDTH))
    noise = 0.1 * rng.standard_normal((24, 6, WIDTH))
    return (spread + noise).astype("float32")
