"""Held-out text for presets, and how well logits predict it."""

import math

import keras_hub
import numpy as np

import keras_idea as ki

WINDOWS = 64


def corpus_of(text, tokenizer):
    """The text in tokens of a KerasHub tokenizer."""
    vocabulary = ki.data.tokenizer_vocabulary(tokenizer)
    return ki.data.load_text(text).tokenized(vocabulary, tokenizer.start_token_id)


def held_out(text, preset, length):
    """Windows of the validation text: ids, one more than `length`; bytes a token."""
    models = keras_hub.models.CausalLMPreprocessor
    corpus = corpus_of(text, models.from_preset(preset).tokenizer)
    x, y = corpus.validation_windows(length=length, limit=WINDOWS)
    return np.concatenate([x, y[:, -1:]], axis=1), corpus.bytes_per_token(y)


def bits(logits_BTV, ids_BT, bytes_per_token):
    """Bits a byte of what follows each token."""
    nats = -likelihoods(logits_BTV, ids_BT).mean()
    return float(nats / bytes_per_token / math.log(2.0))


def likelihoods(logits_BTV, ids_BT):
    """Natural logarithms of the probabilities of the tokens that follow."""
    shifted = logits_BTV[:, :-1] - logits_BTV[:, :-1].max(-1, keepdims=True)
    log_BTV = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return np.take_along_axis(log_BTV, ids_BT[:, 1:, None], axis=-1)
