"""The FFNs found in KerasHub's models are those of the table; its cache writes text."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.ffn import hub_ffns
from keras_idea.models import generate
from keras_idea.models.writers import CachedWriter, writer_of
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


PROMPT_BP = np.array([[1, 2, 3], [7, 7, 5]], "int32")
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
    """In two pieces, of which the second reads what the first wrote."""
    lm = tiny_lm(family)
    expected = generate(lm, PROMPT_BP, 5, temperature=0, window=8)
    writer = writer_of(lm, 8, 8, temperature=0)
    assert isinstance(writer, CachedWriter)
    text = writer.add(writer.add(PROMPT_BP, 3, piece=3), 2, piece=3)
    np.testing.assert_array_equal(text, expected)
    assert text.dtype == np.int32
    # That of some says one token again and again.
    assert len(np.unique(text[:, 3:])) > 2 or family != "llama3"
