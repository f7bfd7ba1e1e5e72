"""Families without a gate whose backbones are no language models: the same contract."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.encoders import backbone, inputs
from tests.support.helpers import LossRecorder, to_numpy
from tests.support.hub_models import ENCODERS, FULL, LENGTH
from tests.support.hub_training import foreign, prune_at_random
from tests.support.selection import rows

BEGIN, STEPS, TARGET, TOTAL, SIZE = 1, 6, 10, 9, 4


def outputs(model, x):
    results = keras.tree.flatten(model(x, training=False))
    return np.concatenate([np.ravel(to_numpy(result)) for result in results])


def with_head(model):
    """A functional model that calls the backbone, and then a Dense layer.

    Of a name that no backbone has in it: Keras on torch goes by paths when it sets
    gradients back, and of two variables with one path leaves out one.
    """
    x = keras.tree.map_structure(
        lambda t: keras.Input(t.shape[1:], dtype=t.dtype, name=t.name), model.input
    )
    first = keras.tree.flatten(model(x))[0]
    return keras.Model(x, keras.layers.Dense(1, use_bias=False, name="numbers")(first))


def trained(name, compact):
    """A model pruned in `fit`, and the loss of each step."""
    keras.utils.set_random_seed(0)
    core = backbone(name)
    model = with_head(core)
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse")
    x = inputs(core, TOTAL * SIZE)
    shape = [length or LENGTH for length in model.output.shape[1:]]
    y = np.random.default_rng(2).normal(size=(TOTAL * SIZE, *shape))
    losses = LossRecorder()
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact=compact)
    fit = {"batch_size": SIZE, "shuffle": False, "verbose": 0}
    model.fit(x, y.astype("float32"), callbacks=[prune, losses], **fit)
    return core, model, losses.losses


DAILY = ("bert", "fnet", "roberta")


@pytest.mark.parametrize("name", rows(ENCODERS, DAILY))
def test_untrained(name):
    model, row = backbone(name), ENCODERS[name]
    x = inputs(model, SIZE)
    stock = outputs(model, x)
    ffns = ki.find_ffns(model)
    assert len(ffns) == row.ffns and {len(ffn.kernels) for ffn in ffns} == {2}
    assert {ffn.hidden_dim for ffn in ffns} == {FULL}
    prune_at_random(model, TARGET)
    masked = outputs(model, x)
    assert np.abs(masked - stock).max() > 0.01
    narrow = ki.compact(model)
    np.testing.assert_allclose(outputs(narrow, x), masked, rtol=0, atol=1e-5)
    assert type(narrow) is type(model)
    for argument in row.widths:
        assert narrow.get_config()[argument] == TARGET
    np.testing.assert_array_equal(outputs(model, x), masked)
    assert foreign(model) == foreign(narrow) == []


@pytest.mark.daily()
@pytest.mark.parametrize("name", ENCODERS)
def test_pruned_in_fit(name, tmp_path):
    core, model, losses = trained(name, "end")
    masked_core, masked, expected = trained(name, "off")
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    # The pooled output's layer is none: no config could say how narrow it is.
    assert len(ki.find_ffns(model)) == len(ki.find_ffns(core)) == ENCODERS[name].ffns
    for ffn, other in zip(*map(ki.find_ffns, (core, masked_core)), strict=True):
        assert ffn.hidden_dim == ffn.width == other.width == TARGET
        np.testing.assert_array_equal(ffn.original_indices, other.kept_neurons())
    x = inputs(core, SIZE, seed=3)
    np.testing.assert_allclose(
        outputs(model, x), outputs(ki.compact(masked), x), rtol=0, atol=1e-5
    )
    if name == "dinov2":
        return  # KerasHub's preset of it makes its positions anew: stock ones differ
    core.save_to_preset(tmp_path / "narrow")
    loaded = type(core).from_preset(str(tmp_path / "narrow"))
    np.testing.assert_allclose(outputs(loaded, x), outputs(core, x), atol=1e-6)
