"""Blocks of attention and an FFN, one behind another, for tests of shapes."""

import keras

from tests.support.helpers import set_random_weights

WIDTH, HEADS, GROUPS, HEAD = 12, 4, 2, 3


@keras.saving.register_keras_serializable(package="shapes")
class Block(keras.layers.Layer):
    """Grouped queries, then an FFN of two Dense layers, each with a residual."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = keras.layers.GroupQueryAttention(HEAD, HEADS, GROUPS)
        self.up = keras.layers.Dense(20, activation="gelu")
        self.down = keras.layers.Dense(WIDTH)

    def build(self, shape):
        self.attention.build(shape, shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], 20))

    def call(self, x):
        x = x + self.attention(x, x)
        return x + self.down(self.up(x))


def chain(blocks=4, sequential=False):
    layers = [Block(name=f"block_{i}") for i in range(blocks)]
    layers.append(keras.layers.Dense(5, name="head"))
    model = keras.Sequential([keras.Input((6, WIDTH)), *layers])
    if not sequential:
        x = inputs = keras.Input((6, WIDTH))
        for layer in layers:
            x = layer(x)
        model = keras.Model(inputs, x)
    set_random_weights(model)
    model.compile("adam", loss="mse")
    return model
