"""Scores and perplexity against NumPy, over every length and window."""

import math

import keras
import numpy as np
import pytest

from keras_idea.errors import ArgumentError
from keras_idea.evaluation import TokenScorer, perplexity

VOCABULARY = 11


class Bigrams(keras.Model):
    """Logits of the next token from the last two; a causal model to know all of."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.table = rng.normal(size=(VOCABULARY, VOCABULARY, VOCABULARY))
        self.first = self.add_weight((VOCABULARY, VOCABULARY, VOCABULARY))
        self.first.assign(self.table)

    def call(self, ids):
        before = keras.ops.pad(ids[:, :-1], [[0, 0], [1, 0]])
        flat = keras.ops.reshape(self.first.value, (-1, VOCABULARY))
        return keras.ops.take(flat, before * VOCABULARY + ids, axis=0)


@pytest.fixture(scope="module")
def model():
    return Bigrams()


def expected_scores(model, sequence):
    """log p of every token but the first, in float64."""
    sequence = np.asarray(sequence)
    before = np.concatenate([[0], sequence[:-2]])
    logits = model.table[before, sequence[:-1]]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    places = np.arange(len(sequence) - 1)
    return logs[places, sequence[1:]]


def random_tokens(rng, length):
    return rng.integers(0, VOCABULARY, length)


def test_every_length_and_order(model):
    """Padding, buckets and batches change nothing; the order is that of the call."""
    rng = np.random.default_rng(1)
    lengths = [2, 3, 32, 33, 34, 64, 65, 66, 90, 91, 2, 40, 33]
    sequences = [random_tokens(rng, length) for length in lengths]
    scorer = TokenScorer(model, max_length=90, batch_tokens=128)
    scores = scorer.score(sequences)
    for sequence, found in zip(sequences, scores, strict=True):
        np.testing.assert_allclose(found, expected_scores(model, sequence), atol=1e-5)


@pytest.mark.parametrize("length", [1, 92])
def test_lengths_that_do_not_fit(model, length):
    with pytest.raises(ArgumentError, match="Sequences"):
        TokenScorer(model, 90).score([[1, 2], np.zeros(length, int)])


@pytest.mark.parametrize("stride", [1, 3, 8, 16, None])
@pytest.mark.parametrize("size", [2, 3, 16, 17, 18, 45])
def test_perplexity_predicts_each_token_once(model, size, stride):
    """Each from its window's context: two tokens are all that this model needs."""
    tokens = random_tokens(np.random.default_rng(size), size)
    scorer = TokenScorer(model, max_length=16)
    found = perplexity(scorer, tokens, stride=stride)
    step = 8 if stride is None else stride
    # By the definition, window by window.
    total, done = 0.0, 0
    end = min(16, size - 1)
    while True:
        window = tokens[max(0, end - 16) : end + 1]
        logs = expected_scores(model, window)
        total -= logs[len(logs) - (end - done) :].sum()
        done = end
        if end == size - 1:
            break
        end = min(end + step, size - 1)
    assert found.tokens == size - 1 and found.bytes == size - 1
    assert found.nats == pytest.approx(total, rel=1e-5)
    assert found.per_token == pytest.approx(math.exp(total / (size - 1)), rel=1e-5)
    bits = total / (size - 1) / math.log(2)
    assert found.bits_per_byte == pytest.approx(bits, rel=1e-5)


def test_every_window_can_begin_with_the_start_token(model):
    """In place of its first token: each token is still predicted once."""
    tokens = random_tokens(np.random.default_rng(1), 33)
    windows = [tokens[:17].copy(), tokens[16:].copy()]
    for window in windows:
        window[0] = 0
    expected = -sum(expected_scores(model, window).sum() for window in windows)
    found = perplexity(TokenScorer(model, 16), tokens, stride=16, start_id=0)
    assert found.nats == pytest.approx(expected, rel=1e-5) and found.tokens == 32
    plain = perplexity(TokenScorer(model, 16), tokens, stride=16)
    assert abs(plain.nats - expected) > 1e-3


@pytest.mark.parametrize(
    "vocabulary, expected", [(256, 8192), (49_152, 2730), (262_144, 512)]
)
def test_a_large_vocabulary_has_smaller_batches(vocabulary, expected):
    """Gemma's logits of 8192 tokens are 8.6 GB; they took 17 GB, and the process."""
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, keras.ops.one_hot(ids, vocabulary))
    assert TokenScorer(model, 16)._batch_tokens == expected
    assert TokenScorer(model, 16, batch_tokens=64)._batch_tokens == 64


def test_bytes_of_tokens(model):
    token_bytes = np.arange(VOCABULARY) + 1.0
    found = perplexity(TokenScorer(model, 16), np.array([9, 0, 3, 4]), token_bytes)
    assert found.bytes == 1 + 4 + 5


def test_rejects_a_text_without_windows(model):
    with pytest.raises(ArgumentError, match="tokens"):
        perplexity(TokenScorer(model, 16), np.array([1]))
    with pytest.raises(ValueError, match="stride"):
        perplexity(TokenScorer(model, 16), np.array([1, 2, 3]), stride=17)
