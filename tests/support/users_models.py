"""Models as users write them: of stock Keras layers, by every way Keras has."""

import tempfile

import keras
import numpy as np
from keras import ops

from tests.support.hub_models import randomize, tiny_lm

WIDTH = 12


class Block(keras.layers.Layer):
    """The block of Keras's example "Text classification with Transformer"."""

    def __init__(self, dim=8, heads=2, width=WIDTH, rate=0.1):
        super().__init__()
        self.att = keras.layers.MultiHeadAttention(heads, dim)
        self.ffn = keras.Sequential(
            [keras.layers.Dense(width, activation="relu"), keras.layers.Dense(dim)]
        )
        self.layernorm1 = keras.layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = keras.layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = keras.layers.Dropout(rate)
        self.dropout2 = keras.layers.Dropout(rate)

    def call(self, inputs, training=None):
        attention = self.dropout1(self.att(inputs, inputs), training=training)
        out1 = self.layernorm1(inputs + attention)
        ffn = self.dropout2(self.ffn(out1), training=training)
        return self.layernorm2(out1 + ffn)


class GPTBlock(Block):
    """The block of Keras's example "Text generation with a miniature GPT"."""

    def call(self, inputs):
        batch, length, _ = ops.shape(inputs)
        i, j = ops.arange(length)[:, None], ops.arange(length)
        mask = ops.tile(ops.cast(i >= j, "bool")[None], (batch, 1, 1))
        attention = self.dropout1(self.att(inputs, inputs, attention_mask=mask))
        out1 = self.layernorm1(inputs + attention)
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class Embed(keras.layers.Layer):
    """Tokens and places, as in both examples."""

    def __init__(self, length=6, words=20, dim=8):
        super().__init__()
        self.token_emb = keras.layers.Embedding(words, dim)
        self.pos_emb = keras.layers.Embedding(length, dim)

    def call(self, x):
        return self.token_emb(x) + self.pos_emb(ops.arange(0, ops.shape(x)[-1]))


class Gated(keras.layers.Layer):
    """A gated FFN that makes its layers in `build`."""

    def build(self, shape):
        self.gate = keras.layers.Dense(WIDTH, use_bias=False)
        self.up = keras.layers.EinsumDense("btd,df->btf", (None, WIDTH))
        self.down = keras.layers.Dense(shape[-1])
        for layer in (self.gate, self.up):
            layer.build(shape)
        self.down.build((*shape[:-1], WIDTH))

    def call(self, x):
        return x + self.down(ops.silu(self.gate(x)) * self.up(x))


class Stack(keras.Model):
    """A subclassed model with its blocks in a list."""

    def __init__(self, blocks):
        super().__init__()
        self.embed = Embed()
        self.blocks = blocks
        self.head = keras.layers.Dense(20)

    def call(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def text_classifier():
    inputs = keras.Input((6,), dtype="int32")
    x = Block()(Embed()(inputs))
    x = keras.layers.GlobalAveragePooling1D()(x)
    x = keras.layers.Dropout(0.1)(x)
    x = keras.layers.Dense(10, activation="relu")(x)
    x = keras.layers.Dropout(0.1)(x)
    return keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(x))


def miniature_gpt():
    inputs = keras.Input((6,), dtype="int32")
    x = GPTBlock()(Embed()(inputs))
    return keras.Model(inputs, [keras.layers.Dense(20)(x), x])


def vision_transformer():
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(8, 4, strides=4)(inputs)
    x = keras.layers.Reshape((4, 8))(x)
    for _ in range(2):
        x1 = keras.layers.LayerNormalization()(x)
        x2 = keras.layers.Add()([keras.layers.MultiHeadAttention(2, 4)(x1, x1), x])
        x3 = keras.layers.LayerNormalization()(x2)
        for units in (WIDTH, 8):
            x3 = keras.layers.Dense(units, activation=keras.activations.gelu)(x3)
            x3 = keras.layers.Dropout(0.1)(x3)
        x = keras.layers.Add()([x3, x2])
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(10, activation="gelu")(x)
    return keras.Model(inputs, keras.layers.Dense(3)(x))


def mlp():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(WIDTH)(inputs)
    x = keras.layers.LeakyReLU()(x)
    x = keras.layers.Dense(7, activation="tanh")(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def sequential():
    layers = [
        keras.Input((5,)),
        keras.layers.Dense(WIDTH, "relu"),
        keras.layers.Dense(2),
    ]
    return keras.Sequential(layers)


def built(model):
    model(ops.zeros((3, 6), "int32"))
    return model


def blocks_in_a_list():
    return built(Stack([Block(), Gated(), GPTBlock()]))


def shared_blocks():
    block = Gated()
    return built(Stack([block, block, Block()]))


def batch_norm_inside():
    inputs = keras.Input((5,))
    x = keras.layers.Dense(WIDTH, name="normed")(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    x = keras.layers.Dense(6)(keras.layers.ReLU()(x))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def two_towers():
    query, item = keras.Input((5,)), keras.Input((7,))
    ends = []
    for tower in (query, item):
        x = keras.layers.Dense(WIDTH, activation="relu")(tower)
        ends.append(keras.layers.Dense(4)(x))
    return keras.Model([query, item], keras.layers.Dot(1)(ends))


def lora_removed():
    """A task of KerasHub's that was given LoRA: its file has it merged."""
    tuned = tiny_lm("llama3")
    tuned.backbone.enable_lora(2)
    randomize(tuned, 0.3)
    model = tiny_lm("llama3")
    with tempfile.TemporaryDirectory() as folder:
        tuned.save_weights(f"{folder}/tuned.weights.h5")
        model.load_weights(f"{folder}/tuned.weights.h5")
    x = inputs_of(model, np.random.default_rng(0))
    answers = [ops.convert_to_numpy(task(x)) for task in (tuned, model)]
    np.testing.assert_allclose(*answers, rtol=1e-4, atol=1e-4)
    return model


def inputs_of(model, rng, size=3):
    """Random inputs for one of these models."""
    if isinstance(model, Stack):
        return rng.integers(0, 20, (size, 6))

    def values(tensor):
        shape = (size, *(n or 6 for n in tensor.shape[1:]))
        if "mask" in tensor.name:
            return np.ones(shape, "int32")
        if tensor.dtype == "int32":
            return rng.integers(0, 20, shape)
        return rng.normal(size=shape).astype("float32")

    sequential = isinstance(model, keras.Sequential)
    given = model.inputs[0] if sequential else model.input
    return keras.tree.map_structure(values, given)
