"""A `fit` that begins after the schedule has: the model was trained before.

The first step masks what is due by then, all at once, as the warning says. What is left
and how it goes on is that of the same fit with compact="off", which cuts nothing out.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.callbacks.prune.run_checks import check_end
from keras_idea.callbacks.prune.session import Session
from tests.support.helpers import residual_model, set_random_weights, to_numpy

# Behind the 8 steps of the first fit, up to the last of them, and across it.
SPANS = {"behind": (0, 4), "up to it": (2, 6), "across it": (4, 8), "after": (10, 4)}
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def trained_twice(data, compact, begin, steps, **settings):
    """A first fit without pruning, then one with it; the model and the logs."""
    model = residual_model()
    set_random_weights(model)
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    model.fit(*data, **FIT)
    prune = ki.IdeaPruneCallback(4, begin, steps, compact=compact, **settings)
    history = model.fit(*data, epochs=2, callbacks=[prune], **FIT)
    return model, history.history


@pytest.mark.filterwarnings("ignore:begin_step=")
@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS.keys())
@pytest.mark.parametrize("compact", ["end", "progressive"])
def test_it_prunes_all_the_same(compact, span, data):
    model, logs = trained_twice(data, compact, *span)
    masked, expected = trained_twice(data, "off", *span)
    pairs = zip(ki.find_ffns(model), ki.find_ffns(masked), strict=True)
    for ffn, other in pairs:
        assert (ffn.hidden_dim, ffn.width, other.width) == (4, 4, 4)
        left = np.flatnonzero(to_numpy(other.mask))
        np.testing.assert_array_equal(ffn.original_indices, left)
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=1e-5)
    assert logs["width"] == expected["width"] and logs["width"][-1] == 4
    for one, other in zip(
        ki.compact(model).weights, ki.compact(masked).weights, strict=True
    ):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)


def test_what_was_not_pruned_ends_the_run():
    """The steps went by, and no mask was made."""
    model = residual_model()
    model.compile("adamw", "mse")
    model.optimizer.build(model.trainable_variables)
    run = Session(
        ki.methods.get("sensitivity"), [(f, 4) for f in ki.find_ffns(model)], 0, 4, 1
    )
    run.begin(model, start=0)
    check_end(run, 4)
    with pytest.raises(RuntimeError, match="after step 5 ffn_0 still has 16 neurons"):
        check_end(run, 5)
    run.end(model)
