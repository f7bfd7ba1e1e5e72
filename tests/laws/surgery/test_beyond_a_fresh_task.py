"""KerasHub models beyond a fresh task: trained before, nested, sharded, saved whole."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_lm
from tests.support.hub_training import prune_at_random

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
QUIET = {"batch_size": 4, "shuffle": False, "verbose": 0}


@pytest.fixture
def lm():
    model = tiny_lm("llama3")
    model.compile(keras.optimizers.AdamW(1e-2), LOSS)
    return model


def data(model, size=16):
    return batch(model, np.random.default_rng(0), size=size)


def test_a_graph_that_shares_the_embedding_with_its_backbone(lm):
    x, _ = data(lm)
    prune_at_random(lm, 12)
    graph = keras.Model(lm.input, lm.output)
    narrow = ki.compact(graph)
    assert (
        narrow.count_params() == tiny_lm("llama3", intermediate_dim=12).count_params()
    )
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), graph.predict(x, verbose=0), atol=1e-5
    )


def test_ffns_that_are_left_out_would_be_wider(lm):
    x, y = data(lm)
    first = ki.find_ffns(lm)[0].name
    before = [to_numpy(variable) for variable in lm.variables]
    prune = ki.IdeaPruneCallback(12, 1, 2, groups=lambda ffn: ffn.name == first)
    with pytest.raises(ValueError, match="holds one intermediate_dim"):
        lm.fit(x, y, callbacks=[prune], **QUIET)
    for old, variable in zip(before, lm.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))


def test_a_copy_that_computes_something_else_is_rejected(lm, monkeypatch):
    """Here one whose last norm is wrong by more than float32 rounds."""
    original = type(lm.backbone).from_config.__func__

    def from_config(cls, config):
        made = original(cls, config)
        norm = made.layers[-1]
        norm.call = lambda x: 1.0002 * type(norm).call(norm, x)
        return made

    monkeypatch.setattr(type(lm.backbone), "from_config", classmethod(from_config))
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(lm)
