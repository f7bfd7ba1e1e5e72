"""KerasHub's families in other shapes: the old model masked, and its preset."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.shapes.blocks import find_blocks, most_important, take_out, without
from keras_idea.shapes.hidden_size import norms_of, take_features
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm

HIDDEN = ("mistral", "qwen3", "gemma", "gemma2", "gemma3", "qwen3 moe", "gpt oss")
DEPTH = {
    **dict.fromkeys(HIDDEN, {"num_layers": 4}),
    **dict.fromkeys(("llama", "llama3", "gpt2", "mixtral", "phi3"), {"num_layers": 4}),
    "smollm3": {
        "num_layers": 4,
        "layer_types": ["full_attention"] * 4,
        "rope_layer_enabled_list": [True, False, True, True],
    },
}


def batch(lm):
    ids = np.random.default_rng(1).integers(0, 32, (2, 8)).astype("int32")
    return {name: ids if "ids" in name else np.ones_like(ids) for name in lm.input}


def outputs(lm):
    return to_numpy(lm(batch(lm), training=False))


def masked_features(lm, kept):
    """Zeroes what writes to features that go; norms take their mean over the rest."""
    backbone = lm.backbone
    size = backbone.hidden_dim
    gone = np.setdiff1d(np.arange(size), kept)
    writers = ("attention_output", "ffw_linear", "feedforward_output", "down")
    for variable in backbone.variables:
        last = len(variable.shape) - 1
        writes = any(name in variable.path for name in writers)
        if variable.name == "embeddings" or (writes and variable.shape[last] == size):
            value = to_numpy(variable).copy()
            value[..., gone] = 0
            variable.assign(value)
    share = np.sqrt(len(kept) / size)
    for norm in norms_of(backbone):
        one = (
            1.0 if type(norm).__module__.startswith("keras_hub.src.models.gemma") else 0
        )
        norm.scale.assign((norm.scale + one) * share - one)
        for name in {"epsilon", "_epsilon"} & vars(norm).keys():
            setattr(norm, name, getattr(norm, name) * share**2)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_smaller_residual_stream_is_the_masked_one(name):
    lm = tiny_lm(name)
    kept = np.sort(np.random.default_rng(0).permutation(16)[:11])
    small = take_features(lm, kept)
    assert small.backbone.hidden_dim == 11
    masked_features(lm, kept)
    np.testing.assert_allclose(outputs(small), outputs(lm), rtol=0, atol=6e-6)


@pytest.mark.parametrize("name", DEPTH)
def test_fewer_blocks_are_the_others_of_the_model(name):
    lm = tiny_lm(name, **DEPTH[name])
    blocks = find_blocks(lm)
    kinds, places = blocks.patterns(2)
    kept = most_important(np.array([0.0, 3.0, 1.0, 2.0]), kinds, places)
    small = take_out(lm, kept)
    assert len(find_blocks(small)) == small.backbone.num_layers == 2
    with without([b for i, b in enumerate(blocks.layers) if i not in kept]):
        expected = outputs(lm)
    np.testing.assert_array_equal(outputs(small), expected)


def test_blocks_stay_where_their_kind_may_stand():
    """Every second block of Gemma 2 looks at a window, the first one first."""
    lm = tiny_lm("gemma2", num_layers=6)
    data = batch(lm)
    small = ki.shrink(lm, {"blocks": 3}, data)
    windows = [b.use_sliding_window_attention for b in find_blocks(small).layers]
    assert windows == [True, False, True]


def test_every_axis_at_once_comes_back_from_a_preset(tmp_path):
    lm = tiny_lm("qwen3", num_layers=3, num_query_heads=4, num_key_value_heads=2)
    targets = {"neurons": 0.5, "kv_groups": 1, "blocks": 2, "hidden_dim": 0.75}
    small = ki.shrink(lm, targets, batch(lm))
    sizes = {
        "intermediate_dim": 12,
        "num_query_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_layers": 2,
        "hidden_dim": 12,
    }
    config = small.backbone.get_config()
    assert {name: config[name] for name in sizes} == sizes
    small.backbone.save_to_preset(tmp_path)
    again = keras_hub.models.Backbone.from_preset(str(tmp_path))
    inputs = batch(lm)
    np.testing.assert_array_equal(
        to_numpy(again(inputs)), to_numpy(small.backbone(inputs))
    )
    # Layers that a file was loaded into have attributes that others have not.
    fewer = [ki.shrink(m, {"blocks": 1}, inputs) for m in (again, small.backbone)]
    one, other = (to_numpy(model(inputs)) for model in fewer)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name, targets, match",
    [
        ("llama3", {"hidden_dim": 0.5}, "would have other heads too"),
        ("gpt2", {"hidden_dim": 0.5}, "would have other heads too"),
        ("llama3", {"kv_groups": 1}, "no 'kv_groups' that can be cut"),
        ("t5gemma", {"blocks": 1}, "cannot be taken out"),
    ],
)
def test_refused(name, targets, match):
    lm = tiny_lm(name)
    with pytest.raises(ValueError, match=match):
        ki.shrink(lm, targets, batch(lm))


def test_padding_counts_for_nothing():
    lm = tiny_lm("mistral")
    ids = np.random.default_rng(2).integers(0, 32, (4, 8)).astype("int32")
    mask = (np.arange(8) < 5).astype("int32") * np.ones((4, 1), "int32")
    found = []
    for filler in (3, 7):
        data = {"token_ids": np.where(mask > 0, ids, filler), "padding_mask": mask}
        small = ki.shrink(lm, {"neurons": 0.5, "hidden_dim": 0.5, "blocks": 1}, data)
        found.append([to_numpy(variable) for variable in small.variables])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
