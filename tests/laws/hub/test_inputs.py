"""Inputs that follow from token ids, as arrays and inside a model."""

import keras
import numpy as np
import pytest

from keras_idea.hub.inputs import text_inputs, token_inputs
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_backbone

IDS = np.array([[5, 6, 0]], "int32")
NAMES = ["token_ids", "padding_mask", "position_ids"]


def test_arrays_stay_arrays():
    inputs = text_inputs(NAMES, IDS)
    assert inputs["token_ids"] is IDS
    assert inputs["padding_mask"].tolist() == [[1, 1, 1]]
    assert inputs["position_ids"].tolist() == [[0, 1, 2]]
    assert {array.dtype for array in inputs.values()} == {np.dtype("int32")}
    assert list(text_inputs(NAMES[:1], IDS)) == ["token_ids"]


def test_a_mask_is_taken():
    inputs = text_inputs(NAMES, IDS, IDS > 0)
    assert inputs["padding_mask"].tolist() == [[1, 1, 0]]
    assert inputs["padding_mask"].dtype == "int32"


def test_tensors_and_symbols():
    """As the scorer of `keras-idea evaluate` asks, inside a compiled function."""
    inputs = text_inputs(NAMES, keras.ops.convert_to_tensor(IDS))
    assert to_numpy(inputs["padding_mask"]).tolist() == [[1, 1, 1]]
    assert to_numpy(inputs["position_ids"]).tolist() == [[0, 1, 2]]
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, text_inputs(NAMES, ids)["position_ids"])
    assert model.predict_on_batch(IDS).tolist() == [[0, 1, 2]]


def test_a_model_says_what_it_takes():
    ids = keras.Input((None,), dtype="int32")
    assert token_inputs(keras.Model(ids, ids + 1), IDS) is IDS
    for family, names in (("llama3", NAMES[:2]), ("gemma4", NAMES)):
        assert sorted(token_inputs(tiny_backbone(family), IDS)) == sorted(names)


def test_images_are_rejected():
    with pytest.raises(ValueError, match="this one takes 'images' too"):
        text_inputs(["token_ids", "images"], IDS)
