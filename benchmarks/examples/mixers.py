"""Three models of MLPs alone, which are one example."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, chain, example, images
from benchmarks.examples.vit import CLASSES, DIM, Patches


class Mixer(layers.Layer):
    """One MLP over places and one over features; both hidden widths are one number."""

    def __init__(self, num_patches, hidden_units, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        self.mlp1 = chain(
            layers.Dense(num_patches, activation="gelu"),
            layers.Dense(num_patches),
            layers.Dropout(rate),
        )
        self.mlp2 = chain(
            layers.Dense(num_patches, activation="gelu"),
            layers.Dense(hidden_units),
            layers.Dropout(rate),
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, shape):
        super().build(shape)

    def call(self, inputs):
        x = ops.transpose(self.normalize(inputs), (0, 2, 1))
        x = ops.transpose(self.mlp1(x), (0, 2, 1)) + inputs
        return x + self.mlp2(self.normalize(x))


class FourierLayer(layers.Layer):
    """A Fourier transform in place of attention."""

    def __init__(self, embedding_dim, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        self.ffn = chain(
            layers.Dense(embedding_dim, activation="gelu"),
            layers.Dropout(rate),
            layers.Dense(embedding_dim),
        )
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        real, _ = ops.fft2((inputs, ops.zeros_like(inputs)))
        x = self.normalize1(inputs + real)
        return self.normalize2(x + self.ffn(x))


class GatedMlp(layers.Layer):
    """Half of the features gates the other half, over places."""

    def __init__(self, num_patches, embedding_dim, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        self.up = chain(
            layers.Dense(embedding_dim * 2, activation="gelu"), layers.Dropout(rate)
        )
        self.down = layers.Dense(embedding_dim)
        self.spatial = layers.Dense(num_patches, bias_initializer="Ones")
        self.normalize1 = layers.LayerNormalization(epsilon=1e-6)
        self.normalize2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        u, v = ops.split(self.up(self.normalize1(inputs)), 2, axis=2)
        v = ops.transpose(self.normalize2(v), (0, 2, 1))
        v = ops.transpose(self.spatial(v), (0, 2, 1))
        return inputs + self.down(u * v)


def mixed(blocks):
    """A classifier around a Sequential of blocks."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Dense(DIM)(Patches(2)(inputs))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling1D()(blocks(x)))
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    return Built(model, images())


@example("vision/mlp_image_classification: MLP-Mixer", pairs=4)
def mixer():
    """Mixing over places, then over features."""
    return mixed(keras.Sequential([Mixer(16, DIM) for _ in range(2)]))


@example("vision/mlp_image_classification: FNet", pairs=2)
def fnet():
    """Fourier transforms, then MLPs."""
    return mixed(keras.Sequential([FourierLayer(DIM) for _ in range(2)]))


@example("vision/mlp_image_classification: gMLP", pairs=0)
def gmlp():
    """A spatial gating unit."""
    return mixed(keras.Sequential([GatedMlp(16, DIM) for _ in range(2)]))
