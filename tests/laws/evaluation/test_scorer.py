"""Perplexity against NumPy, over every window."""

import math

import keras
import numpy as np
import pytest

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
    """(log p, greedy) of every token but the first, in float64."""
    sequence = np.asarray(sequence)
    before = np.concatenate([[0], sequence[:-2]])
    logits = model.table[before, sequence[:-1]]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    places = np.arange(len(sequence) - 1)
    return logs[places, sequence[1:]], logits.argmax(-1) == sequence[1:]


def random_tokens(rng, length):
    return rng.integers(0, VOCABULARY, length)


@pytest.mark.parametrize("stride", [3, None])
@pytest.mark.parametrize("size", [2, 17, 45])
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
        logs, _ = expected_scores(model, window)
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
