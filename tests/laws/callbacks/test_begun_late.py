"""Models that were trained before: by a plain fit, or by a run that is resumed.

What a schedule wants by then is masked at once.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, set_random_weights, to_numpy

FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch


def trained_twice(data, compact, begin, steps):
    """A first fit without pruning, then one with it; the model and the logs."""
    model = residual_model()
    set_random_weights(model)
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    model.fit(*data, **FIT)
    prune = ki.IdeaPruneCallback(4, begin, steps, compact=compact)
    history = model.fit(*data, epochs=2, callbacks=[prune], **FIT)
    return model, history.history


@pytest.mark.daily()
def test_it_prunes_all_the_same(data):
    """The schedule lies across the end of the first fit."""
    model, logs = trained_twice(data, "end", 4, 8)
    masked, expected = trained_twice(data, "off", 4, 8)
    for ffn, other in zip(ki.find_ffns(model), ki.find_ffns(masked), strict=True):
        assert (ffn.hidden_dim, ffn.width, other.width) == (4, 4, 4)
        left = np.flatnonzero(to_numpy(other.mask))
        np.testing.assert_array_equal(ffn.original_indices, left)
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=1e-5)
    assert logs["width"] == expected["width"] and logs["width"][-1] == 4


def made():
    model = residual_model(ffn=dense_gated)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def half(begin=8):
    return ki.IdeaPruneCallback(0.5, begin, 16)


def widths(model):
    return [ffn.hidden_dim for ffn in ki.find_ffns(model)]


def test_a_compact_copy_counts_as_the_model_does(data):
    """As narrowed in place: 0.5 after 0.5 is the same width."""
    model = made()
    model.fit(*data, epochs=4, callbacks=[half()], **FIT)
    copy = ki.compact(ki.compact(model))
    for ours, theirs in zip(ki.find_ffns(copy), ki.find_ffns(model), strict=True):
        assert (ours.hidden_dim, ours.full_dim) == (theirs.width, theirs.full_dim)
        assert ours.original_indices.tolist() == theirs.original_indices.tolist()
    copy.compile(keras.optimizers.Adam(0.01), "mse")
    copy.fit(*data, epochs=4, callbacks=[half()], **FIT)
    assert widths(copy) == [8, 6]


def test_what_is_narrow_can_only_become_narrower(data):
    model = made()

    def prune(target=None, **arguments):
        given = [ki.IdeaPruneCallback(target, 2, 3, **arguments)]
        model.fit(*data, callbacks=given, **FIT)

    prune(8)
    with pytest.raises(ValueError, match="target_dim=9"):
        prune(9)
    with pytest.raises(ValueError, match="target_parameters"):
        prune(target_parameters=1_000_000)
    prune(4)
    assert widths(model) == [4, 4]
