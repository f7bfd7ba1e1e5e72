"""Transformers of videos, and of images of which a part is masked."""

import keras
from keras import layers, ops

from benchmarks.examples.example import (
    Built,
    Holder,
    chain,
    example,
    ffn,
    images,
    normal,
)
from benchmarks.examples.vit import CLASSES, DIM, Patches, block


class TubeletEmbedding(layers.Layer):
    """A convolution over time and space, flattened."""

    def __init__(self, embed_dim, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.projection = layers.Conv3D(embed_dim, patch_size, patch_size)
        self.flatten = layers.Reshape((-1, embed_dim))

    def call(self, videos):
        return self.flatten(self.projection(videos))


class PositionalEncoder(layers.Layer):
    """Makes its embedding in `build`."""

    def __init__(self, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim

    def build(self, shape):
        self.embedding = layers.Embedding(shape[1], self.embed_dim)
        self.places = ops.arange(0, shape[1], 1)

    def call(self, tokens):
        return tokens + self.embedding(self.places)


@example("vision/vivit", pairs=2)
def vivit():
    """Tubelets of a video, two blocks, mean over places."""
    inputs = keras.Input((4, 8, 8, 1))
    x = PositionalEncoder(DIM)(TubeletEmbedding(DIM, (2, 4, 4))(inputs))
    for _ in range(2):
        h = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([layers.MultiHeadAttention(2, 8, dropout=0.1)(h, h), x])
        gelu = keras.ops.gelu
        ffn = chain(
            layers.Dense(DIM * 4, activation=gelu), layers.Dense(DIM, activation=gelu)
        )
        x = layers.Add()([ffn(layers.LayerNormalization(epsilon=1e-6)(x)), x])
    x = layers.GlobalAvgPool1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, normal(4, 8, 8, 1))


class FramePositions(layers.Layer):
    """Adds an embedding of each frame."""

    def __init__(self, length, dim, **kwargs):
        super().__init__(**kwargs)
        self.position_embeddings = layers.Embedding(length, dim)

    def build(self, shape):
        self.position_embeddings.build(shape)

    def call(self, inputs):
        inputs = ops.cast(inputs, self.compute_dtype)
        places = ops.arange(0, ops.shape(inputs)[1], 1)
        return inputs + self.position_embeddings(places)


class FrameEncoder(layers.Layer):
    """A block with a Sequential of two Dense layers."""

    def __init__(self, embed_dim, dense_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim, dropout=0.3)
        self.dense_proj = ffn(dense_dim, embed_dim, keras.activations.gelu)
        self.layernorm_1 = layers.LayerNormalization()
        self.layernorm_2 = layers.LayerNormalization()

    def call(self, inputs, mask=None):
        attended = self.attention(inputs, inputs, attention_mask=mask)
        x = self.layernorm_1(inputs + attended)
        return self.layernorm_2(x + self.dense_proj(x))


@example("vision/video_transformers", pairs=1)
def video_transformers():
    """Frames' features, one encoder layer narrower inside, a maximum over frames."""
    inputs = keras.Input((None, DIM))
    x = FrameEncoder(DIM, 4, 1)(FramePositions(6, DIM)(inputs))
    x = layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, normal(6, DIM))


class MaskingEncoder(layers.Layer):
    """Projects patches, and sets a random half aside; a weight without a name."""

    def __init__(self, patch_area, dim=DIM, share=0.5, **kwargs):
        super().__init__(**kwargs)
        self.patch_area, self.dim, self.share = patch_area, dim, share
        self.token = self.add_weight(shape=(1, patch_area), initializer="normal")
        self.seed_generator = keras.random.SeedGenerator(5)

    def build(self, shape):
        self.number = shape[1]
        self.masked = int(self.share * shape[1])
        self.projection = layers.Dense(self.dim)
        self.places = layers.Embedding(shape[1], self.dim)

    def call(self, patches):
        batch = ops.shape(patches)[0]
        places = self.places(ops.arange(0, self.number)[None])
        places = ops.tile(places, (batch, 1, 1))
        shape = (batch, self.number)
        drawn = keras.random.uniform(shape, seed=self.seed_generator)
        order = ops.argsort(drawn, axis=-1)[..., None]
        hidden, seen = order[:, : self.masked], order[:, self.masked :]
        embedded = self.projection(patches) + places
        token = self.projection(ops.repeat(self.token, self.masked, axis=0))
        return (
            ops.take_along_axis(embedded, seen, axis=1),
            token[None] + ops.take_along_axis(places, hidden, axis=1),
            ops.take_along_axis(places, seen, axis=1),
            hidden,
        )


@example("vision/masked_image_modeling", pairs=2)
def masked_image_modeling():
    """An encoder of the patches that are seen, a decoder of all."""
    inputs = keras.Input((None, DIM))
    x = layers.LayerNormalization(epsilon=1e-6)(block(inputs, [2 * DIM, DIM]))
    encoder = keras.Model(inputs, x, name="mae_encoder")
    inputs = keras.Input((4, DIM))
    x = block(layers.Dense(DIM)(inputs), [2 * DIM, DIM])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Reshape((8, 8, 3))(layers.Dense(192, activation="sigmoid")(x))
    decoder = keras.Model(inputs, x, name="mae_decoder")
    patch_encoder = MaskingEncoder(48)
    patch_encoder(normal(4, 48))
    held = {"patch_encoder": patch_encoder, "encoder": encoder, "decoder": decoder}
    model = Holder(patches=Patches(4), **held)
    parts = [(encoder, normal(2, DIM)), (decoder, normal(4, DIM))]
    return Built(model, images(), parts)
