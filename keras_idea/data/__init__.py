"""Text to train on, as arrays of token ids."""

from keras_idea.data.text import load_text
from keras_idea.data.windows import Corpus, TextError

__all__ = ["Corpus", "TextError", "load_text"]
