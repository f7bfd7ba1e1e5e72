"""The decoder against an independent NumPy computation, and its contract."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.models import DecoderBlock, decoder
from tests.support.decoder_reference import decoder_reference, numpy_of
from tests.support.tiny_decoder import TINY

IDS_BT = np.random.default_rng(0).integers(0, 19, (2, 9)).astype("int32")


def randomize(model, seed=0):
    """Makes every trainable matrix matter: initial logits are nearly uniform."""
    rng = np.random.default_rng(seed)
    for v in model.trainable_variables:
        if len(v.shape) == 2 and not getattr(v, "overwrite_with_gradient", False):
            v.assign(rng.normal(size=v.shape) / np.sqrt(v.shape[0]))


@pytest.mark.parametrize(
    "ffn, tie_embeddings", [(PrunableGatedFFN, False), (GatedFFN, True)]
)
def test_logits_equal_numpy(ffn, tie_embeddings):
    config = dataclasses.replace(TINY, tie_embeddings=tie_embeddings)
    model = decoder(config, ffn=ffn)
    randomize(model)
    logits_BTV = model.predict_on_batch(IDS_BT)
    assert logits_BTV.shape == (2, 9, 19)
    assert logits_BTV.dtype == model.output.dtype == "float32"
    reference = decoder_reference(model, config, IDS_BT)
    np.testing.assert_allclose(logits_BTV, reference, atol=1e-4)


def test_logits_see_no_later_token():
    model = decoder(TINY)
    randomize(model)
    before = model.predict_on_batch(IDS_BT)
    changed = IDS_BT.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 19
    after = model.predict_on_batch(changed)
    np.testing.assert_allclose(after[:, :5], before[:, :5], atol=1e-6)
    assert (np.abs(after[:, 5:] - before[:, 5:]).max(axis=(0, 2)) > 1e-3).all()


def test_any_length_gives_the_logits_of_its_prefix():
    model = decoder(TINY)
    randomize(model)
    full = model.predict_on_batch(IDS_BT)
    for length in (1, 4):
        prefix = model.predict_on_batch(IDS_BT[:, :length])
        np.testing.assert_allclose(prefix, full[:, :length], atol=1e-5)


def test_training_reaches_every_weight_and_lowers_the_loss():
    keras.utils.set_random_seed(0)
    model = decoder(TINY, ffn=GatedFFN)
    model.compile(
        keras.optimizers.Adam(1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    before = [numpy_of(v) for v in model.trainable_variables]
    losses = [float(model.train_on_batch(IDS_BT, IDS_BT)) for _ in range(30)]
    assert losses[0] == pytest.approx(np.log(19), abs=0.3)
    assert losses[-1] < 0.5 * losses[0]
    for v, old in zip(model.trainable_variables, before, strict=True):
        assert np.abs(numpy_of(v) - old).max() > 1e-3, v.path


def test_initial_kernels_have_the_scale_of_their_fans():
    model = decoder(dataclasses.replace(TINY, model_dim=32, num_layers=1))
    attention = model.get_layer("block_0").attention
    # glorot_uniform: variance 2 / (fan_in + fan_out).
    for projection in (attention.query, attention.output_projection):
        kernel = numpy_of(projection.kernel)
        assert kernel.std() == pytest.approx(np.sqrt(2 / 64), rel=0.1)
    queries = numpy_of(attention.query.kernel)
    assert np.abs(queries - numpy_of(attention.output_projection.kernel)).max() > 0.01


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_float32_weights_and_logits(policy):
    model = decoder(TINY, dtype=policy)
    randomize(model)
    logits_BTV = model.predict_on_batch(IDS_BT)
    assert logits_BTV.dtype == model.output.dtype == "float32"
    block = model.get_layer("block_1")
    for layer in (block.ffn, block.attention.query, block.attention_norm):
        assert layer.compute_dtype == policy.removeprefix("mixed_")
        assert layer.variable_dtype == "float32"
    reference = decoder_reference(model, TINY, IDS_BT)
    error = np.abs(logits_BTV - reference).max()
    assert 0 < error < 0.1 * np.abs(reference).max()


@pytest.mark.parametrize(
    "ffn, tie_embeddings", [(PrunableGatedFFN, True), (GatedFFN, False)]
)
def test_saved_model_loads_to_the_same_logits(ffn, tie_embeddings, tmp_path):
    model = decoder(dataclasses.replace(TINY, tie_embeddings=tie_embeddings), ffn=ffn)
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [v.shape for v in loaded.variables] == [v.shape for v in model.variables]
    assert type(loaded.get_layer("block_0").ffn) is ffn
    # Loading builds an FFN before its block; torch needs unique paths all the same.
    assert len({v.path for v in loaded.variables}) == len(loaded.variables)
    np.testing.assert_array_equal(
        loaded.predict_on_batch(IDS_BT), model.predict_on_batch(IDS_BT)
    )


def test_block_config_follows_its_ffn():
    block = DecoderBlock(PrunableGatedFFN(24), 4, 2, rms_norm_epsilon=1e-3, name="b")
    block.ffn = GatedFFN(10, name="narrow")
    copy = DecoderBlock.from_config(block.get_config())
    assert type(copy.ffn) is GatedFFN
    assert copy.ffn is not block.ffn
    assert copy.ffn.hidden_dim == 10
    assert copy.get_config() == block.get_config()


def test_block_keeps_a_built_ffn():
    ffn = GatedFFN(10)
    x_BTD = np.random.default_rng(4).normal(size=(1, 3, 16)).astype("float32")
    alone = numpy_of(ffn(x_BTD))
    block = DecoderBlock(ffn, num_heads=2)
    block(x_BTD)
    np.testing.assert_array_equal(numpy_of(block.ffn(x_BTD)), alone)
    assert len(block.weights) == 2 + 4 + 3


def test_variable_paths_are_unique():
    paths = [v.path for v in decoder(TINY).variables]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: DecoderBlock(GatedFFN, 4), "an object and not its class"),
        (lambda: DecoderBlock(64, 4), "`ffn` must be a Keras layer.*ffn=64"),
    ],
)
def test_bad_layer_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
