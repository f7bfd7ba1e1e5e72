"""What the chains of blocks are given."""

import numpy as np
import pytest

from tests.support.block_chains import WIDTH


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 6, WIDTH)).astype("float32")
    return x, rng.standard_normal((10, 6, 5)).astype("float32")
