"""A Llama as a Mistral: the same numbers, and heads that can be pruned."""

import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from tests.support.helpers import to_numpy
from tests.support.hub_models import batch, tiny_lm

HEADS = {"num_query_heads": 4, "num_key_value_heads": 2}
TEXT = "the quick brown fox jumps over the lazy dog, and again. " * 20


@pytest.mark.parametrize("name, tied", [("llama", True), ("llama3", False)])
def test_equals_the_llama(name, tied):
    lm = tiny_lm(name, **HEADS, tie_word_embeddings=tied)
    mistral = ki.models.as_mistral(lm)
    x, _ = batch(lm, np.random.default_rng(0), size=2, length=24)
    np.testing.assert_allclose(
        to_numpy(mistral(x)), to_numpy(lm(x)), rtol=1e-6, atol=1e-6
    )
    assert type(mistral).__name__ == "MistralCausalLM"


def test_heads_go_and_the_preset_holds_it(tmp_path):
    lm = tiny_lm("llama3", **HEADS)
    x, _ = batch(lm, np.random.default_rng(0))
    small = ki.shrink(ki.models.as_mistral(lm), {"kv_groups": 1}, x)
    assert small.backbone.num_key_value_heads == 1
    small.save_to_preset(tmp_path)
    again = keras_hub.models.CausalLM.from_preset(str(tmp_path), preprocessor=None)
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(small(x)))


def test_the_tokenizer_of_sentencepiece_stays():
    made = make_tokenizer("llama", "sentencepiece", TEXT, 300)
    own = keras_hub.tokenizers.LlamaTokenizer(proto=made.proto)
    lm = tiny_lm("llama", vocabulary_size=own.vocabulary_size())
    lm.preprocessor = keras_hub.models.LlamaCausalLMPreprocessor(own, 16)
    mistral = ki.models.as_mistral(lm)
    assert [*mistral.preprocessor.tokenizer("the fox")] == [*own("the fox")]
    assert mistral.preprocessor.sequence_length == 16
    for model in (mistral, lm):
        model.compile(sampler="greedy")
    one, other = (m.generate("the fox", max_length=12) for m in (mistral, lm))
    assert one == other


class TestRefused:
    def test_scaled_positions(self):
        scaled = {"rope_frequency_adjustment_factor": 8.0, "rope_low_freq_factor": 1.0}
        scaled |= {"rope_high_freq_factor": 4.0, "rope_pretraining_sequence_length": 64}
        with pytest.raises(ki.KerasIdeaError, match="scales its rotary positions"):
            ki.models.as_mistral(tiny_lm("llama3", **scaled))

    def test_another_family(self):
        with pytest.raises(ki.KerasIdeaError, match="takes a KerasHub LlamaCausalLM"):
            ki.models.as_mistral(tiny_lm("gemma"))
