"""The FFNs found in KerasHub's models are those of the table; its cache writes text."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.runs.results import write
from keras_idea.hub.ffn import hub_ffns
from keras_idea.hub.inputs import token_inputs
from tests.support.encoders import ENCODERS
from tests.support.hub_models import MODELS, tiny_lm

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
    known, found = hub_ffns(backbone), ki.find_ffns(backbone)
    assert len(found) == row.ffns == len({ffn.name for ffn in found})
    assert {frozenset(ffn.layers) for ffn in found} == {
        frozenset(ffn.layers) for ffn in known
    }
    by_first = {id(ffn.layers[0]): ffn for ffn in known}
    for ffn in found:
        one = by_first[id(ffn.layers[0])]
        assert ffn.hidden_dim == ffn.width == ffn.full_dim == one.hidden_dim
        # Up, gate and down are in their places, and the biases after them.
        cuts = [
            [(id(c.variable), c.axis, c.group, c.packing) for c in f.cuts()]
            for f in (ffn, one.group)
        ]
        assert cuts[0] == cuts[1]
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
