"""A model of letters whose logits are known, and its tokenizer."""

import keras
import numpy as np

LETTERS = "abcdefghijklmnopqrstuvwxyz .?:ABCDQun\n"


START = len(LETTERS)


def encode(text):
    return [LETTERS.index(letter) if letter in LETTERS else 0 for letter in text]


def decode(ids):
    return "".join(LETTERS[i] if i < START else "" for i in ids)


class Causal(keras.Model):
    """A mean of all embeddings so far: every token of the context counts."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.into = rng.normal(size=(START + 1, 8))
        self.out = rng.normal(size=(8, START + 1))

    def call(self, ids):
        x = keras.ops.take(keras.ops.cast(self.into, "float32"), ids, axis=0)
        counts = keras.ops.cumsum(keras.ops.ones_like(x[..., :1]), axis=1)
        mean = keras.ops.cumsum(x, axis=1) / counts
        return keras.ops.matmul(mean, keras.ops.cast(self.out, "float32"))

    def logits(self, ids):
        """What follows `ids`, in float64."""
        return self.into[ids].mean(0) @ self.out
