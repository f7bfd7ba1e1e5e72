"""Text to train on, as arrays of bytes."""

from keras_idea.data.text import load_text
from keras_idea.data.windows import ByteCorpus, TextError

__all__ = ["ByteCorpus", "TextError", "load_text"]
