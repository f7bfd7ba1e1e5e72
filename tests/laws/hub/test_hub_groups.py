"""The FFNs found in KerasHub's models, whose configs follow; its cache writes text."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._graph.configs import check_configs
from keras_idea._lm.runs.results import write
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea.hub.inputs import token_inputs
from tests.support.encoders import ENCODERS
from tests.support.hub_models import MODELS, tiny_lm


def first_half(ffn):
    half = np.arange(ffn.hidden_dim // 2)
    return np.broadcast_to(half, (*ffn.units_shape[:-1], len(half)))


DAILY = ("deit", "dinov2", "llama tied", "llama3", "llama", "qwen3", "siglip text")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in DAILY else pytest.mark.daily())
        for name in (*MODELS, *ENCODERS)
    ],
)
def test_found(name):
    row = {**MODELS, **ENCODERS}[name]
    backbone = getattr(keras_hub.models, row.backbone)(**row.arguments)
    found = ki.find_ffns(backbone)
    assert len(found) == row.ffns == len({ffn.name for ffn in found})
    for ffn in found:
        assert ffn.hidden_dim == ffn.width == ffn.full_dim
        assert {cut.matrices for cut in ffn.cuts()} <= {1, 2 if row.packing else 1}
    config = backbone.get_config()
    check_configs(backbone, [(ffn, ffn.hidden_dim // 2) for ffn in found], True)
    assert backbone.get_config() == config
    narrow_whole(backbone, [(ffn, first_half(ffn)) for ffn in found])
    halves = {name: config[name] // 2 for name in row.widths}
    assert backbone.get_config() == {**config, **halves}
    again = type(backbone).from_config(backbone.get_config())
    shapes = [[tuple(v.shape) for v in m.variables] for m in (again, backbone)]
    assert shapes[0] == shapes[1]
    found = ki.find_ffns(backbone)
    explained = ki.explain(backbone)
    assert explained.taken == {ffn.name: ffn.hidden_dim for ffn in found}
    told = [line.split() for line in str(explained).splitlines()]
    for ffn in found:
        assert [ffn.name, str(ffn.hidden_dim), "neurons"] in told


CAUSAL = [name for name, row in MODELS.items() if row.task.endswith("CausalLM")]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            name, marks=() if name in ("llama3", "gemma3") else pytest.mark.daily()
        )
        for name in CAUSAL
    ],
)
def test_greedy_tokens_are_those_without_a_cache(family):
    """In a text that slides through a window of 8 tokens."""
    lm, prompt = tiny_lm(family), [1, 2, 3]
    expected = list(prompt)
    for _ in range(9):
        held = expected
        if len(held) >= 8:
            held = expected[4 + (len(expected) - 8) // 4 * 4 :]
        logits = lm.predict_on_batch(token_inputs(lm, np.array([held], "int32")))
        expected.append(int(logits[0, -1].argmax()))
    found = write(lm, prompt, 9, 8, keras_hub.samplers.GreedySampler())
    assert found == expected
    # That of some says one token again and again.
    assert len(set(found[3:])) > 2 or family != "llama3"
