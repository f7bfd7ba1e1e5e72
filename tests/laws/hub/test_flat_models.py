"""Models of a KerasHub backbone's layers, without the backbone: what its file holds."""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_backbone, tiny_lm

FIT = {"batch_size": 4, "epochs": 2, "verbose": 0}
pytestmark = [
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),
    pytest.mark.filterwarnings("ignore:Layer '.*was passed an input with a mask"),
]


def flat(backbone, block=None):
    """A classifier of the layers that lead to the last hidden states, or a block's."""
    output = backbone.output if block is None else backbone.get_layer(block).output
    if isinstance(output, dict):
        output = output["decoder_sequence_output"]
    return keras.Model(backbone.input, keras.layers.Dense(4)(output[:, 0]))


class Taken(keras.Model):
    """Takes the blocks of a backbone."""

    def __init__(self, backbone):
        super().__init__()
        self.embedding = backbone.token_embedding
        self.blocks = list(backbone.transformer_layers)
        self.head = keras.layers.Dense(4)

    def call(self, inputs):
        x = self.embedding(inputs["token_ids"])
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def pruned(model, x, **how):
    """Fits it, with half of its neurons."""
    y = np.zeros((8, 4), "float32")
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(0.5, 0, 3, **how)
    model.fit(x, y, callbacks=[prune], **FIT)
    assert all(2 * ffn.hidden_dim == ffn.full_dim for ffn in ki.find_ffns(model))


def assert_loads(backbone, x, folder):
    backbone.save_to_preset(folder)
    again = keras_hub.models.Backbone.from_preset(str(folder))
    for one, other in zip(
        *[keras.tree.flatten(each(x)) for each in (again, backbone)], strict=True
    ):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


@pytest.mark.filterwarnings("error:.*makes a number of its width")
@pytest.mark.parametrize("name", ["llama3", "gemma2", "gpt2", "t5"])
def test_the_backbone_of_a_task_follows(name, tmp_path):
    lm = tiny_lm(name)
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    pruned(flat(lm.backbone), x)
    assert_loads(lm.backbone, x, tmp_path / "preset")


@pytest.mark.parametrize("compact", ["progressive", "off"])
def test_it_follows_in_other_ways(compact, tmp_path):
    """At milestones; and a masked one, as wide as it was, is compacted afterwards."""
    lm = tiny_lm("llama3", tie_word_embeddings=True)  # which its config forgets
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    model = flat(lm.backbone)
    if compact == "off":
        model.compile("adam", "mse")
        prune = ki.IdeaPruneCallback(0.5, 0, 3, compact="off")
        model.fit(x, np.zeros((8, 4)), callbacks=[prune], **FIT)
        narrow = ki.compact(lm.backbone)
        assert narrow.intermediate_dim < lm.backbone.intermediate_dim
        np.testing.assert_allclose(
            to_numpy(narrow(x)), to_numpy(lm.backbone(x)), atol=1e-5
        )
        assert_loads(narrow, x, tmp_path / "narrow")
    else:
        pruned(model, x, compact=compact)
    assert_loads(lm.backbone, x, tmp_path / "preset")


def test_of_a_subclassed_model_that_takes_its_blocks(tmp_path):
    lm = tiny_lm("llama3")
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    model = Taken(lm.backbone)
    model(x)
    pruned(model, x)
    assert_loads(lm.backbone, x, tmp_path / "preset")


def test_restored_from_a_checkpoint(tmp_path):
    x = None
    for epochs in (2, 3):
        lm = tiny_lm("llama3")
        model = flat(lm.backbone)
        model.compile("adam", "mse")
        if x is None:
            x, _ = batch(lm, np.random.default_rng(0), size=8)
        checkpoint = ki.Checkpoint(tmp_path / "checkpoints")
        done = checkpoint.restore(model)
        prune = ki.IdeaPruneCallback(0.5, 0, 3)
        fit = {**FIT, "initial_epoch": done, "epochs": epochs}
        model.fit(x, np.zeros((8, 4)), callbacks=[prune, checkpoint], **fit)
    assert done == 2
    assert_loads(lm.backbone, x, tmp_path / "preset")


def test_a_backbone_that_is_not_found_is_told(tmp_path):
    """Nothing leads to it; called once, as tasks do, it is found."""
    backbone = tiny_backbone("llama3")
    lm = tiny_lm("llama3")
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    said = "'transformer_layer_0' becomes narrower, and the config of its KerasHub b"
    with pytest.warns(UserWarning, match=said):
        pruned(flat(backbone), x)
    backbone = tiny_backbone("llama3")
    backbone(backbone.input)
    pruned(flat(backbone), x)
    assert_loads(backbone, x, tmp_path / "preset")


def test_one_of_which_not_all_blocks_are_pruned_is_told():
    """Its config holds one width."""
    lm = tiny_lm("llama3")
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    with pytest.warns(UserWarning, match="could not be loaded once they are narrow"):
        pruned(flat(lm.backbone, "transformer_layer_0"), x)


@pytest.mark.filterwarnings("error::UserWarning")
def test_layers_of_kerashub_in_a_model_of_ones_own(tmp_path):
    """They are of no backbone, and say themselves how wide they are."""
    inputs = keras.Input((4, 16))
    outputs = keras_hub.layers.TransformerEncoder(24, 2)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(4)(outputs[:, 0]))
    x = np.random.default_rng(0).normal(size=(8, 4, 16)).astype("float32")
    pruned(model, x)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict(x, verbose=0), model.predict(x, verbose=0)
    )
