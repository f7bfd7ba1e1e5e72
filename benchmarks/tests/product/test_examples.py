"""Models of keras.io's examples: the layers that a reader would prune are found."""

import random

import keras
import numpy as np
import pytest

import keras_idea as ki
from benchmarks.examples.example import all_examples

#: Where the count is not the reader's: what is found.
OTHERWISE = {
    "vision/cait": 4,  # heads that Dense layers mix
    "vision/image_captioning": 0,  # the decoder's layer, whose call takes two inputs
    "nlp/semantic_similarity_with_bert": 2,  # of the frozen BERT
    "generative/ddpm": 4,  # of the moving average, which is frozen
    # Its code knows the size of a batch, and blocks are followed with another.
    "nlp/text_classification_with_switch_transformer": 1,
    # More than a reader sees: behind a concatenation, a split or a layer's own weights.
    "vision/eanet": 6,
    "vision/swin_transformers": 3,
    "vision/nerf": 6,
    "vision/attention_mil_classification": 3,
    "structured_data/wide_deep_cross_networks": 2,
    "generative/molecule_generation": 5,
    "generative/wgan-graphs": 6,
    "graph/gnn_citations: baseline": 5,
    "graph/gnn_citations": 7,
    "rl/ddpg_pendulum": 5,
    "keras_recipes/antirectifier": 2,
}

#: The one of `make test`; the others, 67 models, run before a release.
DAILY = "vision/image_classification_with_vision_transformer"
ROWS = [
    pytest.param(name, marks=() if name == DAILY else pytest.mark.daily())
    for name in all_examples()
]


@pytest.mark.parametrize("name", ROWS)
def test_pairs_are_found(name):
    if "switch" in name and keras.backend.backend() != "tensorflow":
        pytest.skip("it knows its batch size; Keras traces it on TensorFlow alone")
    keras.backend.clear_session()
    random.seed(0)
    np.random.seed(0)
    example = all_examples()[name]
    built = example.build().called()
    found = ki.explain(built.model).taken
    assert len(found) == OTHERWISE.get(name, example.pairs)
