"""Tiny language models that read the ten texts in five languages and code."""

import functools

import numpy as np

import keras_idea as ki
from keras_idea._keras.hub_importers import python_tokenizer
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from keras_idea.hub.tokenizers import cut_as
from tests.support.hub_models import tiny_lm
from tests.support.ten_texts import TEXTS

VOCABULARY, LENGTH = 420, 16
#: Tokens that stay.
SIZE = 340
#: Family, tokenizer, and whether the output rows are the embeddings.
CASES = {
    "llama3": ("llama3", "bpe", False),
    "llama3 tied": ("llama3", "bpe", True),
    "cut": ("qwen", "bpe", True),
    "gemma": ("gemma", "sentencepiece", True),
    "mistral": ("mistral", "sentencepiece", False),
}


@functools.cache
def wide(name):
    """The model of a case."""
    family, kind, tied = CASES[name]
    more = {"tie_word_embeddings": tied} if family in ("llama3", "qwen") else {}
    lm = lm_of(family, kind, **more)
    return cutting(lm) if name == "cut" else lm


@functools.cache
def narrow(name):
    """It with the tokens that six of the texts use most."""
    return ki.shrink(wide(name), {"vocabulary": SIZE}, TEXTS[:6])


def ids_of(tokenizer, text):
    return np.asarray(tokenizer(text)).tolist()


def cutting(lm):
    """Gives a model a tokenizer that cuts text as a released one does."""
    import tokenizers

    tokenizer = lm.preprocessor.tokenizer
    backend = tokenizers.Tokenizer.from_str(python_tokenizer(tokenizer).to_str())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut_as(tokenizer, backend)
    return lm


def lm_of(family, kind, **more):
    """A tiny task with a tokenizer of these texts; rows beyond it, as released ones."""
    import keras_hub

    tokenizer = make_tokenizer(family, kind, "\n".join(TEXTS * 3), VOCABULARY)
    lm = tiny_lm(family, num_layers=1, vocabulary_size=VOCABULARY + 4, **more)
    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=LENGTH)
    return lm
