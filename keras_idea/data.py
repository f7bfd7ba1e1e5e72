"""Text to train on: read, tokenized once, given to `fit` in batches."""

from keras_idea._lm.data.text import open_text
from keras_idea._lm.data.tokens import Tokens
from keras_idea._lm.data.vocabulary import (
    Vocabulary,
    byte_vocabulary,
    tokenizer_vocabulary,
)
from keras_idea.errors import TextError

__all__ = [
    "TextError",
    "Tokens",
    "Vocabulary",
    "byte_vocabulary",
    "open_text",
    "tokenizer_vocabulary",
]
