"""Text to train on: found, read, tokenized once, given to `fit` in batches."""

from keras_idea._lm.data.text import open_text
from keras_idea._lm.data.tokens import Tokens

__all__ = ["Tokens", "open_text"]
