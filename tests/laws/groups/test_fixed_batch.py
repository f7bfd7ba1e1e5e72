"""Models whose code needs the real batch are followed, and proved with it."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki

BATCH, LENGTH, DIM, WIDTH = 16, 3, 4, 12


class Tokens(layers.Layer):
    """All tokens of the batch side by side, and apart again."""

    def call(self, x):
        flat = ops.reshape(x, (BATCH * LENGTH, DIM))
        return ops.reshape(flat, (-1, LENGTH, DIM))


def ffn():
    return [layers.Dense(WIDTH, "relu", name="up"), layers.Dense(2, name="down")]


def of_operations():
    inputs = keras.Input((LENGTH, DIM))
    flat = ops.reshape(inputs, (BATCH * LENGTH, DIM))
    up, down = ffn()
    return keras.Model(inputs, down(up(ops.reshape(flat, (-1, LENGTH, DIM)))))


@pytest.mark.daily("torch", "jax", "tensorflow")
def test_operations_of_a_graph_too():
    assert list(ki.explain(of_operations()).taken.values()) == [WIDTH]


class Scores(keras.Model):
    """Something reads the attention scores, and something needs a batch of 16."""

    def __init__(self, tokens=Tokens):
        super().__init__()
        self.attention = layers.MultiHeadAttention(4, 4)
        self.of_scores, self.tokens = layers.Dense(DIM), tokens()

    def build(self, shape):
        self.attention.build(shape, shape)
        self.of_scores.build((None, 1, LENGTH))

    def call(self, x):
        padding = ops.cast(ops.all(x == 0, -1, keepdims=True), x.dtype)
        x = self.tokens(x)
        made, scores = self.attention(x, x, return_attention_scores=True)
        read = self.of_scores(ops.mean(scores, axis=(1, 2), keepdims=True)[:, 0])
        return made + read * (padding if self.padded else 1.0)

    padded = False


def prune_heads(model, batch=BATCH):
    model.build((None, LENGTH, DIM))
    model.compile("adam", "mse")
    x = np.zeros((2 * batch, LENGTH, DIM), "float32")
    prune = ki.IdeaPruneCallback(targets={"kv_groups": 2}, begin_step=1, prune_steps=1)
    model.fit(x, x, batch_size=batch, verbose=0, callbacks=[prune])


def test_a_proof_finds_the_batch_that_a_model_needs():
    """It was left out, and heads whose scores are read were pruned silently."""
    with pytest.raises(ValueError, match="do not act each on its own"):
        prune_heads(Scores())


def test_a_proof_sees_padding():
    """The scores are read there alone."""
    model = Scores(layers.Identity)
    model.padded = True
    with pytest.raises(ValueError, match="Scores"):
        prune_heads(model)


def test_what_was_not_proved_is_said():
    """A batch of seven is one that the proof does not try."""
    seven = layers.Lambda(lambda x: ops.reshape(ops.reshape(x, (21, 4)), (-1, 3, 4)))
    with pytest.warns(UserWarning, match="was not tested"):
        prune_heads(Scores(lambda: seven), batch=7)
