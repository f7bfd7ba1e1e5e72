"""The cosine that ends where it says, against Keras's own."""

import keras
import numpy as np
import pytest

from benchmarks.paper.cell import Cell
from benchmarks.paper.plan import plan
from benchmarks.paper.rate import Rate
from benchmarks.paper.scale import SCALES


@pytest.mark.parametrize(("warmup", "first"), [(0, 1), (25, 1), (25, 60)])
def test_annealed_is_keras_own(warmup, first):
    rate = Rate("annealed", 0.02, 2e-4, 100, warmup, first)
    expected = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup else 0.02,
        decay_steps=100 - warmup,
        alpha=0.01,
        warmup_target=0.02 if warmup else None,
        warmup_steps=warmup,
    )
    for iterations in (0, 7):
        mine = rate.schedule(iterations)
        for i in range(0, 101 - first, 5):
            known = float(expected(first + i))
            assert float(mine(iterations + i)) == pytest.approx(known, rel=1e-5)
            tensor = keras.ops.convert_to_tensor(iterations + i)
            assert float(mine(tensor)) == pytest.approx(known, rel=1e-4)


def test_a_scale_says_which_cosine():
    [printed] = plan(Cell(pipeline="scratch"), SCALES["tiny"])
    [annealed] = plan(Cell(pipeline="scratch"), SCALES["mini"])
    ends = [
        float(stage.rate.schedule()(stage.steps - 1)) for stage in (printed, annealed)
    ]
    assert printed.rate.shape == "cosine" and annealed.rate.shape == "annealed"
    np.testing.assert_allclose(ends[1], 3.2e-4, rtol=1e-5)
    # As it is printed, a warm-up of 50 in 1500 steps leaves it a little above its end.
    assert 3e-5 < ends[0] < 4e-5
