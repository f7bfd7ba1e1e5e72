"""`ki.sliced`: the model of the first neurons, as `ki.compact` makes it of a mask."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.models import decoder
from tests.support.dense_ffns import dense_gated
from tests.support.elastic import FIT
from tests.support.helpers import residual_model, to_numpy
from tests.support.hub_models import batch, tiny_lm
from tests.support.older_keras import needs_3_15
from tests.support.tiny_decoder import TINY

_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


MODELS = {
    "dense": lambda: residual_model(ffn=dense_gated),
    "prunable": residual_model,
    "decoder": lambda: decoder(TINY),
    "plain, biased": lambda: residual_model(ffn=ki.UngatedFFN, use_bias=True),
}
HUB = ("llama3", "gemma4", "mixtral", "gpt oss")


def randomized(model):
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    return model


def masked(model, share):
    """The model with all but the first neurons at zero."""
    for ffn in ki.find_ffns(model):
        first = np.arange(ffn.hidden_dim) < share * ffn.hidden_dim
        mask = np.broadcast_to(first, ffn.units_shape).astype("float32")
        if ffn.masks_itself:
            ffn.state.set_mask(mask)
        for cut in ffn.cuts():
            values = to_numpy(cut.variable) * to_numpy(cut.spread(mask))
            cut.variable.assign(values)
    return model


def assert_equals_compact(model):
    narrow = ki.sliced(model, 0.25)
    again = ki.sliced(model, {f.name: f.hidden_dim // 4 for f in ki.find_ffns(model)})
    compact = ki.compact(masked(model, 0.25))
    for other in (again, compact):
        assert [v.path for v in narrow.variables] != []
        for got, want in zip(narrow.variables, other.variables, strict=True):
            np.testing.assert_array_equal(to_numpy(got), to_numpy(want))
    if all(type(layer).__module__.startswith("keras.") for layer in model.layers):
        assert {type(x) for x in narrow.layers} == {type(x) for x in model.layers}
    return narrow


@pytest.mark.parametrize("name", MODELS)
def test_equals_compact_of_a_masked_model(name):
    model = randomized(MODELS[name]())
    narrow = assert_equals_compact(model)
    x = np.random.default_rng(1).normal(size=(3, 5, 8))
    x = np.abs(x[..., 0]).astype("int32") if name == "decoder" else x
    expected = model.predict(x, verbose=0)  # masked by now
    # The masked one adds zeros, which on some processors is another order of the sum.
    size = np.abs(expected).max()
    found = narrow.predict(x, verbose=0)
    np.testing.assert_allclose(found / size, expected / size, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", HUB)
def test_equals_compact_in_kerashub(name):
    narrow = assert_equals_compact(tiny_lm(name))
    again = type(narrow).from_config(narrow.get_config())
    assert [v.shape for v in again.variables] == [v.shape for v in narrow.variables]


@needs_3_15
@pytest.mark.parametrize("name", HUB)
def test_a_step_in_kerashub(name, tmp_path):
    """Experts, and blocks that multiply by kernels themselves, step as the narrow."""
    model = tiny_lm(name)
    x, y = batch(model, np.random.default_rng(0))
    model.compile(keras.optimizers.SGD(0.1), _LOGITS)
    narrow = ki.sliced(model, 0.5)
    elastic = ki.ElasticCallback({"small": 0.5}, sample={"small": 1.0})
    history = model.fit(
        x, y, batch_size=4, verbose=0, validation_data=(x, y), callbacks=[elastic]
    ).history
    narrow.fit(x, y, batch_size=4, verbose=0)
    after = elastic.sliced("small")
    for got, want in zip(after.variables, narrow.variables, strict=True):
        np.testing.assert_allclose(to_numpy(got), to_numpy(want), atol=1e-6)
    loss = narrow.evaluate(x, y, batch_size=4, verbose=0, return_dict=True)["loss"]
    assert history["val_small_loss"] == [pytest.approx(loss, rel=1e-5)]


def test_one_layer_between_two_others():
    """A chain, whose middle layer reads neurons and makes others."""
    layers = [keras.Input((4,)), *(keras.layers.Dense(n, "relu") for n in (8, 12, 3))]
    model = randomized(keras.Sequential(layers))
    model.compile(keras.optimizers.SGD(0.01), "mse")
    x, y = np.ones((8, 4), "float32"), np.zeros((8, 3), "float32")
    narrow = ki.sliced(model, 0.5)
    assert [tuple(v.shape) for v in narrow.variables][::2] == [(4, 4), (4, 6), (6, 3)]
    elastic = ki.ElasticCallback({"small": 0.5}, sample={"small": 1.0})
    model.fit(x, y, callbacks=[elastic], **FIT)
    narrow.fit(x, y, **FIT)
    for got, want in zip(
        ki.sliced(model, 0.5).variables, narrow.variables, strict=True
    ):
        np.testing.assert_allclose(to_numpy(got), to_numpy(want), rtol=1e-5)


@pytest.mark.parametrize(
    ("width", "message"),
    [
        (0, "int >= 1"),
        (1.0, r"float in \(0, 1\)"),
        (True, "int >= 1"),
        ("small", "int >= 1"),
        ({}, "must name an FFN"),
        (17, "wider than ffn_0, which has 16"),
        ({"ffn_2": 4}, "names an FFN that the model does not have.*ffn_0, ffn_1"),
    ],
)
def test_widths_that_cannot_be(width, message):
    with pytest.raises(ki.KerasIdeaError, match=message):
        ki.sliced(residual_model((16, 16)), width)


def test_nothing_to_slice():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ki.KerasIdeaError, match="no FFN whose neurons can be sliced"):
        ki.sliced(model, 0.5)
