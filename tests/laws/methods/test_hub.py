"""Every method on stock KerasHub models: probes in the down layer's input."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.functional.activation import activation_sums
from keras_idea.hub.families import FAMILIES
from keras_idea.methods import METHODS, Activation
from keras_idea.methods.calibration import Calibration, captured
from keras_idea.methods.captures import capture_of
from tests.support.helpers import to_numpy
from tests.support.method_reference import AGGREGATIONS

ARGUMENTS = {
    "vocabulary_size": 19,
    "num_layers": 1,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}
GEMMA = {**ARGUMENTS, "head_dim": 4, "image_size": None, "sliding_window_size": 4}
GEMMA3 = {**GEMMA, "use_post_ffw_norm": True, "use_post_attention_norm": True}
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def language_model(family="Llama3", arguments=ARGUMENTS):
    """A tiny stock model, compiled."""
    keras_hub = pytest.importorskip("keras_hub")
    keras.utils.set_random_seed(0)
    backbone = getattr(keras_hub.models, f"{family}Backbone")(**arguments)
    task = getattr(keras_hub.models, f"{family}CausalLM")
    lm = task(backbone=backbone, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    lm.compile(keras.optimizers.AdamW(0.01), loss)
    return lm


def parts(lm):
    """The classes of a model's layers, and the paths of its variables."""
    return [type(x) for x in lm._flatten_layers()], [v.path for v in lm.variables]


@pytest.fixture
def tokens():
    """48 sequences of 6 tokens, some of them padding, and their targets."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 19, (48, 7))
    mask = np.arange(6) < rng.integers(3, 7, 48)[:, None]
    inputs = {"token_ids": ids[:, :-1], "padding_mask": mask.astype("int32")}
    return inputs, ids[:, 1:], mask.astype("float32")


@pytest.mark.parametrize("name", [*METHODS, "activation with data"])
def test_every_method_narrows_in_fit_and_compacts_to_stock(name, tokens):
    x, y, weights = tokens
    method = Activation(x, num_samples=40) if "data" in name else name
    lm = language_model()
    # Compilers take their time: the one that changes most inside the step gets it.
    lm.run_eagerly = name != "learned_mask"
    prune = ki.IdeaPruneCallback(4, begin_step=3, prune_steps=5, method=method)
    stock = parts(lm)
    logs = lm.fit(x, y, sample_weight=weights, epochs=2, callbacks=[prune], **FIT)
    assert parts(lm) == stock  # as KerasHub made it
    ffns = ki.find_ffns(lm)
    assert [(ffn.hidden_dim, ffn.width) for ffn in ffns] == [(4, 4)]
    assert lm.backbone.intermediate_dim == 4
    assert logs.history["width"][-1] == 4 and np.isfinite(logs.history["loss"]).all()
    narrow = ki.compact(lm)
    assert type(narrow.backbone).__module__.startswith("keras_hub")
    assert narrow.backbone.intermediate_dim == 4
    np.testing.assert_allclose(
        narrow.predict(x, verbose=0), lm.predict(x, verbose=0), atol=2e-5
    )


def test_masked_to_the_end_it_compacts_the_same(tokens, tmp_path):
    """With compact='off', and the mask's soft values in the rows of down."""
    x, y, weights = tokens
    lm = language_model()
    lm.run_eagerly = True
    prune = ki.IdeaPruneCallback(4, 3, 5, method="learned_mask", compact="off")
    lm.fit(x, y, sample_weight=weights, epochs=2, callbacks=[prune], **FIT)
    assert [(ffn.hidden_dim, ffn.width) for ffn in ki.find_ffns(lm)] == [(16, 4)]
    expected = lm.predict(x, verbose=0)
    narrow = ki.compact(lm)
    assert narrow.backbone.intermediate_dim == 4
    np.testing.assert_allclose(narrow.predict(x, verbose=0), expected, atol=2e-5)
    # A stock model takes the file of the masked one.
    lm.save_weights(tmp_path / "masked.weights.h5")
    other = language_model()
    other.run_eagerly = True  # as the other: a compiler sums in another order
    other.load_weights(tmp_path / "masked.weights.h5")
    np.testing.assert_array_equal(other.predict(x, verbose=0), expected)
    assert [ffn.width for ffn in ki.find_ffns(other)] == [4]


@pytest.mark.parametrize(
    "family, arguments", [("Llama3", ARGUMENTS), ("Gemma3", GEMMA3)]
)
def test_the_down_layer_shows_the_hidden_activations(family, arguments, tokens):
    """Against what the down layers' inputs are; padding left out."""
    x, _, mask = tokens
    lm = language_model(family, arguments)
    ffns, stock = ki.find_ffns(lm), parts(lm)
    captures = [capture_of(ffn, activation_sums) for ffn in ffns]
    statistics = captured(lm, captures, Calibration(x, num_samples=48))
    assert parts(lm) == stock
    seen = []
    for ffn in ffns:
        down = ffn.layers[-1]
        call = down.call
        down.call = lambda z, call=call, **_: seen.append(to_numpy(z)) or call(z)
    lm.run_eagerly = True
    lm(x, training=False)
    for (sums, samples), z in zip(statistics, seen, strict=True):
        real = [s[m > 0] for s, m in zip(z, mask, strict=True)]
        assert samples == 48 and z.shape == (48, 6, 16)
        np.testing.assert_allclose(
            sums / samples, AGGREGATIONS["paper"](real), rtol=2e-5
        )


@pytest.fixture
def gemma4(tokens):
    """The model whose blocks read the kernels past the layers, and data for it."""
    x, y, _ = tokens
    positions = np.broadcast_to(np.arange(6), (48, 6))
    lm = language_model("Gemma4", {**GEMMA, "sliding_window_pattern": 2})
    return lm, {**x, "position_ids": positions}, y


def test_gemma4_hides_its_activations(gemma4):
    lm, x, y = gemma4
    message = "needs the hidden activations of .*which no single layer is called on"
    for method in ("activation", Activation(x), "learned_mask"):
        prune = ki.IdeaPruneCallback(4, begin_step=3, prune_steps=2, method=method)
        with pytest.raises(ValueError, match=message):
            lm.fit(x, y, callbacks=[prune], **FIT)
    prunable = {name: row.ffns for name, row in FAMILIES.items() if row.ffns}
    hiding = [name for name, ffns in prunable.items() if not ffns.calls_down]
    assert hiding == ["Gemma4Backbone"]


def test_gemma4_at_random(gemma4):
    lm, x, y = gemma4
    lm.run_eagerly = True
    prune = ki.IdeaPruneCallback(4, begin_step=3, prune_steps=2, method="random")
    lm.fit(x, y, callbacks=[prune], **FIT)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(lm)} == {4}
