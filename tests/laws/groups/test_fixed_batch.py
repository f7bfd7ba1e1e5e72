"""A layer whose code needs the real batch hides itself, and no other layer."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki

BATCH, LENGTH, DIM, WIDTH = 16, 3, 4, 12
# Keras on torch calls a layer on real tensors where it does not know what it makes,
# and so cannot make such a model itself.
of_unknown = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras on torch cannot make the model"
)


class Tokens(layers.Layer):
    """All tokens of the batch side by side, and apart again."""

    def call(self, x):
        flat = ops.reshape(x, (BATCH * LENGTH, DIM))
        return ops.reshape(flat, (-1, LENGTH, DIM))


class Twice(Tokens):
    def call(self, x):
        return super().call(x), ops.relu(x)


class Switch(layers.Layer):
    """Experts that see the tokens of the whole batch."""

    def __init__(self):
        super().__init__()
        self.router = layers.Dense(2, name="router")
        up, down = layers.Dense(WIDTH, "relu"), layers.Dense(DIM)
        self.expert = keras.Sequential([up, down], name="expert")

    def build(self, shape):
        self.router.build((None, DIM))
        self.expert.build((None, DIM))

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        flat = ops.reshape(x, (BATCH * LENGTH, DIM))
        made = self.expert(flat) * ops.max(self.router(flat))
        return ops.reshape(made, (-1, LENGTH, DIM))


def ffn():
    return [layers.Dense(WIDTH, "relu", name="up"), layers.Dense(2, name="down")]


def functional(*chain):
    x = inputs = keras.Input((LENGTH, DIM))
    for layer in chain:
        x = layer(x)
    return keras.Model(inputs, x)


def of_operations():
    inputs = keras.Input((LENGTH, DIM))
    flat = ops.reshape(inputs, (BATCH * LENGTH, DIM))
    up, down = ffn()
    return keras.Model(inputs, down(up(ops.reshape(flat, (-1, LENGTH, DIM)))))


def of_two():
    inputs = keras.Input((LENGTH, DIM))
    one, other = Twice()(inputs)
    up, down = ffn()
    return keras.Model(inputs, [down(up(one)), layers.Dense(2)(other)])


@of_unknown
@pytest.mark.parametrize(
    "make",
    [
        lambda: functional(Tokens(), *ffn()),
        lambda: keras.Sequential([keras.Input((LENGTH, DIM)), Tokens(), *ffn()]),
        lambda: functional(functional(Tokens()), *ffn()),
        lambda: functional(functional(Tokens(), *ffn()), layers.ReLU()),
        of_two,
    ],
    ids=["functional", "sequential", "nested", "within", "two outputs"],
)
def test_what_a_graph_knows_is_used(make):
    explained = ki.explain(make())
    assert list(explained.taken.values()) == [WIDTH]


def test_operations_of_a_graph_too():
    assert list(ki.explain(of_operations()).taken.values()) == [WIDTH]


def test_a_layer_that_holds_dense_ones_is_named():
    explained = ki.explain(functional(Switch(), *ffn()))
    assert explained.taken == {"switch/expert": WIDTH, "up": WIDTH}
    (why,) = [w for path, w in explained.left_out.items() if "router" in path]
    assert why.startswith(
        "'switch', which holds it, cannot be called on a symbolic batch of 2: Reshape "
    )
    assert "raised" in why and f"({BATCH * LENGTH}, {DIM})" in why


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
    with pytest.raises(ValueError, match="do not act each on its own"):
        prune_heads(model)


class OfSeven(layers.Layer):
    """A batch that the proof does not try."""

    def call(self, x):
        return ops.reshape(ops.reshape(x, (7 * LENGTH, DIM)), (-1, LENGTH, DIM))


class Full(layers.Layer):
    """Has no memory for an example, whose numbers are random."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def call(self, x):
        if str(getattr(x, "device", "")) == "cpu" and ops.any(x != 0):
            self.sizes.append(len(x))
            raise MemoryError("no room")
        return x


@pytest.mark.parametrize("layer", [OfSeven, Full])
def test_what_was_not_proved_is_said(layer):
    """Whatever was raised, it was passed over; out of memory, in larger batches too."""
    if layer is Full and keras.backend.backend() != "torch":
        pytest.skip("only torch calls it on numbers")
    model = Scores(layer)
    with pytest.warns(UserWarning, match="was not tested"):
        prune_heads(model, batch=7)
    if layer is Full:
        assert max(model.tokens.sizes) == 2
