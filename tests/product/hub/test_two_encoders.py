"""Backbones that hold two others, of an image and of a text: each config follows."""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki

_DIMS = {"hidden_dim": 16, "num_layers": 2, "num_heads": 2, "intermediate_dim": 24}
_IMAGE = {**_DIMS, "patch_size": 4, "image_shape": (8, 8, 3)}
_TEXT = {**_DIMS, "vocabulary_size": 20, "embedding_dim": 16, "max_sequence_length": 6}
_RNG = np.random.default_rng(0)
X = {
    "images": _RNG.random((8, 8, 8, 3)).astype("float32"),
    "token_ids": _RNG.integers(0, 20, (8, 6)).astype("int32"),
}


class Compared(keras.Model):
    """Trains on what the two encoders say of each other."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def call(self, inputs):
        return self.backbone(inputs)["vision_logits"]


def backbone(family):
    made = keras_hub.models
    image = getattr(made, f"{family}VisionEncoder")(**_IMAGE, name="image")
    text = getattr(made, f"{family}TextEncoder")(**_TEXT, name="text")
    more = {"projection_dim": 16} if family == "CLIP" else {}
    return getattr(made, f"{family}Backbone")(image, text, **more)


def logits(model):
    outputs = model.predict(X, verbose=0)
    return np.concatenate([outputs["vision_logits"], outputs["text_logits"]])


@pytest.mark.filterwarnings("ignore:The structure of `inputs` doesn't match")
@pytest.mark.parametrize("family", ["CLIP", "SigLIP"])
def test_two_encoders_are_pruned_and_the_preset_loads(family, tmp_path):
    """Their blocks may have one path, and weights that Keras numbers."""
    core = backbone(family)
    y = np.zeros((8, 8), "float32")
    model, fit = Compared(core), {"epochs": 4, "batch_size": 8, "verbose": 0}
    model(X)
    if family == "CLIP":  # SigLIP's two outputs have one name: no loss for each
        model, y = core, {"vision_logits": y, "text_logits": y}
        model.compile("adam", {name: "mse" for name in y})
    else:
        model.compile("adam", "mse")
    model.fit(X, y, callbacks=[ki.IdeaPruneCallback(12, 1, 2)], **fit)
    assert {ffn.hidden_dim for ffn in ki.find_ffns(core)} == {12}
    expected = logits(core)
    core.save_to_preset(tmp_path / "preset")
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path / "preset"))
    np.testing.assert_allclose(logits(loaded), expected, atol=1e-6)
    np.testing.assert_allclose(logits(ki.compact(core)), expected, atol=1e-6)
