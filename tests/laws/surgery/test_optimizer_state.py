"""Every Keras optimizer goes through compaction, in `fit` and by `compact`."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.surgery import shrink_in_place
from tests.support.helpers import residual_model, start_pruning
from tests.support.optimizers import OPTIMIZERS, WHOLE_MATRIX


def masked_model(optimizer, data, ffn=ki.PrunableGatedFFN):
    """A model half of whose neurons were pruned, with two more steps since."""
    keras.utils.set_random_seed(0)
    model = residual_model((16, 12), use_bias=True, ffn=ffn)
    model.compile(optimizer, "mse")
    prune = start_pruning(model, 6, 0, 1)
    for _ in range(4):
        model.train_on_batch(*data)
    prune.on_train_end()
    return model


@pytest.mark.parametrize("name", [*OPTIMIZERS, *WHOLE_MATRIX])
def test_the_next_steps_are_equal(name, data):
    make = {**OPTIMIZERS, **WHOLE_MATRIX}[name]
    masked, shrunk = masked_model(make(), data), masked_model(make(), data)
    optimizer = shrunk.optimizer
    narrow = ki.compact(masked)
    shrink_in_place(shrunk)
    assert shrunk.optimizer is optimizer
    sizes = [
        [int(np.prod(v.shape)) for v in m.optimizer.variables] for m in (shrunk, narrow)
    ]
    assert sum(sizes[0]) == sum(sizes[1])
    first = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    second = [m.train_on_batch(*data) for m in (masked, narrow, shrunk)]
    # The first loss is before the optimizer's step, the second after it.
    np.testing.assert_allclose(first, first[0], rtol=2e-5)
    np.testing.assert_allclose(second[1], second[2], rtol=2e-5)
    if name in OPTIMIZERS:
        np.testing.assert_allclose(second, second[0], rtol=2e-5)
