"""The decoder against an independent NumPy computation, and loaded from a file."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.models import decoder
from tests.support.decoder_reference import decoder_reference
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
