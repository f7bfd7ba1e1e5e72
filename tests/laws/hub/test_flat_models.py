"""Models of a KerasHub backbone's layers: the backbone is found, and follows."""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._keras.around import layers_around
from keras_idea._keras.layers import walk
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_lm

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
def test_the_backbone_of_a_task_follows(tmp_path):
    lm = tiny_lm("llama3", tie_word_embeddings=True)  # which its config forgets
    x, _ = batch(lm, np.random.default_rng(0), size=8)
    pruned(flat(lm.backbone), x)
    assert_loads(lm.backbone, x, tmp_path / "preset")


def test_a_task_of_kerashub_calls_its_backbone():
    backbone = tiny_lm("bart").backbone
    output = keras.tree.flatten(backbone.output)[0]
    flat = keras.Model(backbone.input, keras.layers.ReLU()(output))
    dense = [layer for layer in walk(flat) if isinstance(layer, keras.layers.Dense)]
    assert layers_around(flat, dense) == [backbone]
