"""Vision transformers written with functional models, around layers of their own."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, backend_gelu, chain, example, images

DIM, CLASSES = 16, 5


class Patches(layers.Layer):
    """Cuts an image into patches; its config holds their size."""

    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def call(self, images):
        found = ops.image.extract_patches(images, size=self.patch_size)
        batch, rows, columns, values = ops.shape(found)
        return ops.reshape(found, (batch, rows * columns, values))

    def get_config(self):
        return {**super().get_config(), "patch_size": self.patch_size}


class PatchEncoder(layers.Layer):
    """A projection plus the embedding of each place; half of its config is missing."""

    def __init__(self, num_patches, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(projection_dim)
        self.places = layers.Embedding(num_patches, projection_dim)

    def call(self, patches):
        places = ops.expand_dims(ops.arange(0, self.num_patches), axis=0)
        return self.projection(patches) + self.places(places)

    def get_config(self):
        return {**super().get_config(), "num_patches": self.num_patches}


class StochasticDepth(layers.Layer):
    """Leaves out a branch at random, for whole examples."""

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed_generator = keras.random.SeedGenerator(7)

    def call(self, x, training=None):
        if not training:
            return x
        keep = 1 - self.rate
        shape = (ops.shape(x)[0],) + (1,) * (len(x.shape) - 1)
        drawn = keep + keras.random.uniform(shape, 0, 1, seed=self.seed_generator)
        return x / keep * ops.floor(drawn)


def mlp(x, units, rate=0.1, activation="gelu"):
    """A Dense layer with an activation and Dropout for each of `units`."""
    for width in units:
        x = layers.Dense(width, activation=activation)(x)
        x = layers.Dropout(rate)(x)
    return x


def block(x, units, activation="gelu", branch=lambda x: x):
    """Attention and an MLP, each behind a normalization and beside a residual."""
    normal_x = layers.LayerNormalization(epsilon=1e-6)(x)
    attended = layers.MultiHeadAttention(2, DIM, dropout=0.1)(normal_x, normal_x)
    x = layers.Add()([branch(attended), x])
    found = mlp(layers.LayerNormalization(epsilon=1e-6)(x), units, 0.1, activation)
    return layers.Add()([branch(found), x])


@example("vision/image_classification_with_vision_transformer", pairs=4)
def vit():
    """Augmentation, patches, two blocks, Flatten, an MLP head of two layers."""
    augmentation = chain(
        layers.Normalization(mean=0.5, variance=0.1), layers.RandomFlip("horizontal")
    )
    inputs = keras.Input((8, 8, 3))
    x = PatchEncoder(16, DIM)(Patches(2)(augmentation(inputs)))
    for _ in range(2):
        x = block(x, [2 * DIM, DIM])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    x = mlp(layers.Dropout(0.5)(x), [48, 24], 0.5)
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    return Built(model, images())


@example("vision/object_detection_using_vision_transformer", pairs=6)
def object_detection():
    """A ViT with four Dense layers before the four numbers of a box."""
    inputs = keras.Input((8, 8, 3))
    x = PatchEncoder(16, DIM)(Patches(2)(inputs))
    for _ in range(2):
        x = block(x, [2 * DIM, DIM])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    x = mlp(layers.Dropout(0.3)(x), [48, 32, 24, 16], 0.3)
    model = keras.Model(inputs, layers.Dense(4)(x))
    return Built(model, images())


class TokenizerByConv(layers.Layer):
    """Convolutions and pooling, whose places become a sequence."""

    def __init__(self, channels=(8, DIM), **kwargs):
        super().__init__(**kwargs)
        self.convolutions = keras.Sequential()
        for filters in channels:
            self.convolutions.add(
                layers.Conv2D(filters, 3, padding="valid", activation="relu")
            )
            self.convolutions.add(layers.ZeroPadding2D(1))
            self.convolutions.add(layers.MaxPooling2D(3, 2, "same"))

    def call(self, images):
        found = self.convolutions(images)
        shape = ops.shape(found)
        return ops.reshape(found, (-1, shape[1] * shape[2], shape[-1]))


class PlaceEmbedding(layers.Layer):
    """A learned vector for each place: a weight, added."""

    def __init__(self, length, **kwargs):
        super().__init__(**kwargs)
        self.length = length

    def build(self, shape):
        self.places = self.add_weight(name="places", shape=(self.length, shape[-1]))

    def call(self, inputs):
        return ops.broadcast_to(self.places, ops.shape(inputs))

    def get_config(self):
        return {**super().get_config(), "length": self.length}


class SequencePooling(layers.Layer):
    """A mean over the places, with learned weights."""

    def __init__(self):
        super().__init__()
        self.attention = layers.Dense(1)

    def call(self, x):
        weights = ops.transpose(ops.softmax(self.attention(x), axis=1), (0, 2, 1))
        return ops.squeeze(ops.matmul(weights, x), -2)


@example("vision/cct", pairs=2)
def cct():
    """Convolutions make the tokens; stochastic depth beside each residual."""
    inputs = keras.Input((8, 8, 3))
    x = TokenizerByConv()(layers.Rescaling(2.0)(inputs))
    x = x + PlaceEmbedding(4)(x)
    for rate in (0.0, 0.1):
        depth = StochasticDepth(rate)
        x = block(x, [DIM, DIM], backend_gelu(), depth)
    x = SequencePooling()(layers.LayerNormalization(epsilon=1e-5)(x))
    model = keras.Model(inputs, layers.Dense(CLASSES)(x))
    return Built(model, images())


def external_attention(x, dim, heads, factor=2):
    """Two Dense memories, normalized twice, in place of keys and values."""
    places, each = x.shape[1], dim * factor // heads
    x = ops.reshape(layers.Dense(dim * factor)(x), (-1, places, heads, each))
    x = ops.transpose(x, (0, 2, 1, 3))
    weights = layers.Softmax(axis=2)(layers.Dense(dim // factor)(x))
    weights = weights / (1e-9 + ops.sum(weights, axis=-1, keepdims=True))
    x = layers.Dense(each)(layers.Dropout(0.1)(weights))
    x = ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, places, dim * factor))
    return layers.Dropout(0.1)(layers.Dense(dim)(x))


@example("vision/eanet", pairs=2)
def eanet():
    """Two blocks of external attention and an MLP, mean over places."""
    inputs = keras.Input((8, 8, 3))
    x = PatchEncoder(16, DIM)(Patches(2)(inputs))
    for _ in range(2):
        normal_x = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.add([external_attention(normal_x, DIM, 4), x])
        h = layers.LayerNormalization(epsilon=1e-5)(x)
        h = layers.Dropout(0.2)(layers.Dense(24, activation=backend_gelu())(h))
        x = layers.add([layers.Dropout(0.2)(layers.Dense(DIM)(h)), x])
    x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, images())


def convolve(x, filters, kernel=3, strides=1):
    """A convolution with swish."""
    return layers.Conv2D(filters, kernel, strides, "same", activation="swish")(x)


@example("vision/mobilevit", pairs=1)
def mobilevit():
    """Inverted residuals, then patches folded out of a feature map and back."""
    inputs = keras.Input((8, 8, 3))
    x = convolve(layers.Rescaling(1.0)(inputs), 8, strides=2)
    m = layers.BatchNormalization()(layers.Conv2D(16, 1, use_bias=False)(x))
    m = layers.DepthwiseConv2D(3, padding="same")(layers.Activation("swish")(m))
    x = layers.Add()([layers.Conv2D(8, 1)(m), x])
    local = convolve(convolve(x, DIM), DIM, 1)
    patches = layers.Reshape((4, 4, DIM))(local)
    patches = block(patches, [patches.shape[-1] * 2, patches.shape[-1]], "swish")
    folded = convolve(layers.Reshape((4, 4, DIM))(patches), 8, 1)
    x = convolve(layers.Concatenate(axis=-1)([x, folded]), DIM)
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, images())
