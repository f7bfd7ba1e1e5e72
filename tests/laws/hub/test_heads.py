"""Heads of KerasHub's families; a Llama as a Mistral, whose heads can be pruned."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._finding.explain import why_nothing
from keras_idea._step.row_ops import zero_rows
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_lm

HEADS = {"num_query_heads": 8, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    "name, why",
    [
        ("llama3", "the config of Llama3Backbone cannot say how wide"),
        ("gpt2", "the config of GPT2Backbone cannot say how wide"),
        ("gemma4", "tied"),
    ],
)
def test_heads_that_are_left_out(name, why):
    lm = tiny_lm(name, **(HEADS if name == "llama3" else {}))
    assert not ki.find_groups(lm, ["kv_groups"]) and why in why_nothing(lm, "kv_groups")


def test_layers_of_one_config_have_one_number():
    lm = tiny_lm("mistral", **HEADS)
    first, _ = ki.find_groups(lm, ["kv_groups"])
    mask = keras.ops.convert_to_tensor(np.array([1, 0, 1, 1], "float32"))
    zero_rows(first.cuts(), mask)
    with pytest.raises(ValueError, match="holds one num_key_value_heads"):
        ki.compact(lm)


def test_equals_the_llama():
    lm = tiny_lm("llama", **HEADS, tie_word_embeddings=True)
    mistral = ki.hub.as_mistral(lm)
    x, _ = batch(lm, np.random.default_rng(0), size=2, length=24)
    np.testing.assert_allclose(
        to_numpy(mistral(x)), to_numpy(lm(x)), rtol=1e-6, atol=1e-6
    )
    assert type(mistral).__name__ == "MistralCausalLM"


class TestRefused:
    def test_scaled_positions(self):
        scaled = {"rope_frequency_adjustment_factor": 8.0, "rope_low_freq_factor": 1.0}
        scaled |= {"rope_high_freq_factor": 4.0, "rope_pretraining_sequence_length": 64}
        with pytest.raises(ki.KerasIdeaError, match="scales its rotary positions"):
            ki.hub.as_mistral(tiny_lm("llama3", **scaled))
