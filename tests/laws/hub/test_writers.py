"""Text with KerasHub's cache of keys and values against one pass per token."""

import keras
import numpy as np
import pytest

from keras_idea.hub.inputs import token_inputs
from keras_idea.layers import GatedFFN
from keras_idea.models import DecoderConfig, decoder, generate
from keras_idea.models.writers import (
    CachedWriter,
    PlainWriter,
    has_cache,
    writer_of,
)
from tests.support.hub_models import MODELS, VOCABULARY, tiny_lm

PROMPT_BP = np.array([[1, 2, 3], [7, 7, 5]], "int32")
CAUSAL = [name for name, row in MODELS.items() if row.task.endswith("CausalLM")]


@pytest.fixture(scope="module")
def llama3():
    return tiny_lm("llama3")


@pytest.mark.parametrize("family", CAUSAL)
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


def test_a_text_longer_than_the_window(llama3):
    """Each piece is that after the last tokens that leave room for it."""
    writer, text, pieces = CachedWriter(llama3, 8, temperature=0), PROMPT_BP, []
    while text.shape[1] < 14:
        more = writer.add(text, 2, piece=64)
        held = text[:, -6:]
        pieces.append((held, more[:, text.shape[1] :]))
        text = more
    for held, new in pieces:
        expected = generate(llama3, held, 2, temperature=0, window=8)[:, -2:]
        np.testing.assert_array_equal(new, expected)
    # All at once: pieces of half a window.
    whole = writer.add(PROMPT_BP, 11, piece=64)
    assert whole.shape == (2, 14)
    np.testing.assert_array_equal(whole[:, :7], text[:, :7])


@pytest.mark.parametrize("top_k", [1, 2, VOCABULARY + 9, None])
def test_draws_are_among_the_likeliest(llama3, top_k):
    """And with several of them they are not always the first, nor twice the same."""
    text = np.tile(PROMPT_BP[:1], (12, 1))
    likeliest = np.array(llama3.predict_on_batch(token_inputs(llama3, text)))[
        0, -1
    ].argsort()
    writer = CachedWriter(llama3, 8, temperature=2.0, top_k=top_k, seed=1)
    draws = [writer.add(text, 1, piece=5)[:, -1] for _ in range(2)]
    assert set(np.ravel(draws)) <= set(likeliest[-(top_k or VOCABULARY) :])
    if top_k != 1:
        assert (draws[0] != draws[1]).any() and len(np.unique(draws)) > 1
    again = CachedWriter(llama3, 8, temperature=2.0, top_k=top_k, seed=1)
    np.testing.assert_array_equal(again.add(text, 1, piece=5)[:, -1], draws[0])


def test_the_model_keeps_its_own_sampler(llama3):
    sampler, function = llama3.sampler, llama3.generate_function
    writer = CachedWriter(llama3, 8, temperature=0)
    writer.add(PROMPT_BP, 5, piece=5)
    assert llama3.sampler is sampler and llama3.generate_function is function


def test_a_model_without_a_cache_draws_as_generate():
    keras.utils.set_random_seed(0)
    config = DecoderConfig(
        vocabulary_size=11,
        model_dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=24,
        sequence_length=8,
    )
    model = decoder(config, ffn=GatedFFN)
    assert not has_cache(model) and not has_cache(tiny_lm("llama3").backbone)
    writer = writer_of(model, 8, 99, temperature=0.5, top_k=4, seed=3)
    assert isinstance(writer, PlainWriter)
    text = writer.add(writer.add(PROMPT_BP, 3, 1), 4, 1)
    expected = generate(model, PROMPT_BP, 7, temperature=0.5, top_k=4, seed=3, window=8)
    np.testing.assert_array_equal(text, expected)
