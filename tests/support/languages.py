"""Ten texts in five languages and code, and tiny language models that read them."""

import functools

import numpy as np

import keras_idea as ki
from keras_idea.hub.hf.tokenizer import cut_as
from keras_idea.keras_private.hub_tokenizers import python_tokenizer
from keras_idea.lm.data.text.make_tokenizer import make_tokenizer
from tests.support.hub_models import tiny_lm

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and it's the dog's 1,234th day.",
    "A second text: again and again the same words, in another order of words.",
    "Der schnelle Fuchs springt über den faulen Hund; süße Äpfel kosten 3,50 €.",
    "Où est passé l'été ? Ça fait déjà 20 ans qu'on l'attend, là-bas, à côté.",
    "Быстрая лиса прыгает через ленивую собаку. И снова, и снова.",
    "素早い茶色の狐が、のろまな犬を飛び越える。漢字とかな。",
    "def f(x):\n    if x > 1024:\n        return x + 10.25\n\n    return f(x - 1)\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];  // again\r\n}\n",
    "  two spaces,\n\n\nlines, \ttabs and naïve ☃ 🎉 👩‍🚀 signs\u200b.",
    '{"key": [1, 2.5e-3, null], "text": "a \\"quoted\\" string"}',
)
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
