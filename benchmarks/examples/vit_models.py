"""Vision transformers written as subclassed models of functional blocks."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, backend_gelu, chain, example, images
from benchmarks.examples.vit import CLASSES, DIM, PatchEncoder, Patches, StochasticDepth


class LayerScale(layers.Layer):
    """A factor for each feature."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.gamma = self.add_weight(shape=(dim,), initializer="ones")

    def call(self, x):
        return x * self.gamma


class TalkingHeads(layers.Layer):
    """Attention whose scores are mixed between heads by Dense layers."""

    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.qkv, self.proj = layers.Dense(3 * dim), layers.Dense(dim)
        self.before, self.after = layers.Dense(heads), layers.Dense(heads)

    def call(self, x, training=False):
        batch, places, dim = ops.shape(x)
        shape = (batch, places, 3, self.heads, dim // self.heads)
        qkv = ops.transpose(ops.reshape(self.qkv(x), shape), (2, 0, 3, 1, 4))
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        scores = self.before(ops.transpose(scores, (0, 2, 3, 1)))
        scores = self.after(ops.softmax(scores, axis=2))
        scores = ops.transpose(scores, (0, 3, 1, 2))
        found = ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3))
        return self.proj(ops.reshape(found, (batch, places, dim))), scores


def scaled_block(name):
    """A functional block that returns its attention scores too."""
    inputs = keras.Input((None, DIM))
    x = layers.LayerNormalization(epsilon=1e-6)(inputs)
    attended, scores = TalkingHeads(DIM, 2)(x)
    x = layers.Add()([inputs, StochasticDepth(0.1)(LayerScale(DIM)(attended))])
    h = layers.LayerNormalization(epsilon=1e-6)(x)
    h = layers.Dropout(0.1)(layers.Dense(24, activation=backend_gelu())(h))
    h = LayerScale(DIM)(layers.Dropout(0.1)(layers.Dense(DIM)(h)))
    outputs = layers.Add()([x, StochasticDepth(0.1)(h)])
    return keras.Model(inputs, [outputs, scores], name=name)


class CaiT(keras.Model):
    """Holds functional blocks in a list, and tokens as weights; takes a dict."""

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.projection = chain(
            layers.Conv2D(config["dim"], 2, 2), layers.Reshape((-1, config["dim"]))
        )
        self.cls = self.add_weight(shape=(1, 1, config["dim"]), initializer="zeros")
        self.places = self.add_weight(shape=(1, 16, config["dim"]), initializer="zeros")
        self.blocks = [scaled_block(f"ls_{i}") for i in range(config["depth"])]
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        self.head = layers.Dense(config["classes"])

    def call(self, x, training=False):
        x = self.projection(x) + self.places
        token = ops.tile(self.cls, (ops.shape(x)[0], 1, 1))
        x = ops.concatenate([token, x], axis=1)
        for scaled in self.blocks:
            x, _ = scaled(x)
        return self.head(self.norm(x)[:, 0])


@example("vision/cait", pairs=2)
def cait():
    """Talking heads, layer scale, a class token."""
    model = CaiT({"dim": DIM, "depth": 2, "classes": CLASSES})
    return Built(model, images())


class DistilledViT(keras.Model):
    """Functional blocks, two tokens; returns two outputs in training, else one."""

    def __init__(self, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.projection = chain(layers.Conv2D(DIM, 2, 2), layers.Reshape((16, DIM)))
        shape = (1, 1, DIM)
        self.places = self.add_weight(shape=(1, 18, DIM), initializer="zeros")
        self.cls = self.add_weight(shape=shape, initializer="zeros", name="cls")
        self.dist = self.add_weight(shape=shape, initializer="zeros", name="dist")
        self.blocks = [plain_block(f"block_{i}") for i in range(depth)]
        self.norm = layers.LayerNormalization(epsilon=1e-6)
        self.head, self.head_dist = layers.Dense(CLASSES), layers.Dense(CLASSES)

    def call(self, x, training=False):
        x = self.projection(x)
        batch = ops.shape(x)[0]
        tokens = [ops.tile(token, (batch, 1, 1)) for token in (self.cls, self.dist)]
        x = ops.concatenate([*tokens, x], axis=1) + self.places
        for transformed in self.blocks:
            x = transformed(x)
        x = self.norm(x)
        found = self.head(x[:, 0]), self.head_dist(x[:, 1])
        return found if training else (found[0] + found[1]) / 2


def plain_block(name):
    """A functional block of a ViT."""
    inputs = keras.Input((None, DIM))
    x = layers.LayerNormalization(epsilon=1e-6)(inputs)
    x = layers.Add()([layers.MultiHeadAttention(2, DIM, dropout=0.1)(x, x), inputs])
    h = layers.LayerNormalization(epsilon=1e-6)(x)
    h = layers.Dropout(0.1)(layers.Dense(4 * DIM, activation=backend_gelu())(h))
    h = layers.Dropout(0.1)(layers.Dense(DIM)(h))
    return keras.Model(inputs, layers.Add()([x, StochasticDepth(0.1)(h)]), name=name)


class DeiT(keras.Model):
    """Trains a student beside a teacher that rests; `call` is the student's."""

    def __init__(self, student, teacher, **kwargs):
        super().__init__(**kwargs)
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def call(self, inputs):
        return self.student(inputs, training=False)


@example("vision/deit", pairs=2)
def deit():
    """A class token and a distillation token."""
    teacher = chain(keras.Input((8, 8, 3)), layers.Flatten(), layers.Dense(CLASSES))
    student = DistilledViT()
    student(images())
    parts = [(student, images())]
    model = DeiT(student, teacher)
    return Built(model, images(), parts)


def cross_attention():
    """A functional model of a dict of two inputs: latents look at the data."""
    inputs = {"latents": keras.Input((4, DIM)), "data": keras.Input((16, DIM))}
    latents = layers.LayerNormalization(epsilon=1e-6)(inputs["latents"])
    data = layers.LayerNormalization(epsilon=1e-6)(inputs["data"])
    query, key, value = (layers.Dense(DIM)(x) for x in (latents, data, data))
    x = layers.Attention(use_scale=True, dropout=0.1)([query, key, value])
    x = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, latents]))
    return keras.Model(inputs, layers.Add()([feed_forward([24, DIM])(x), x]))


def feed_forward(units):
    """A Sequential: Dense with gelu but for the last, then Dropout."""
    inner = [layers.Dense(u, activation=backend_gelu()) for u in units[:-1]]
    return keras.Sequential([*inner, layers.Dense(units[-1]), layers.Dropout(0.2)])


class Perceiver(keras.Model):
    """Makes functional models in `build` and calls them again and again."""

    def __init__(self, iterations):
        super().__init__()
        self.iterations = iterations

    def build(self, shape):
        self.latents = self.add_weight(shape=(4, DIM), initializer="random_normal")
        self.patcher, self.encoder = Patches(2), PatchEncoder(16, DIM)
        self.cross = cross_attention()
        inputs = keras.Input((4, DIM))
        x = layers.LayerNormalization(epsilon=1e-6)(inputs)
        x = layers.Add()([layers.MultiHeadAttention(2, DIM)(x, x), inputs])
        h = feed_forward([24, DIM])(layers.LayerNormalization(epsilon=1e-6)(x))
        self.transformer = keras.Model(inputs, layers.Add()([h, x]))
        self.pool = layers.GlobalAveragePooling1D()
        self.head = feed_forward([20, CLASSES])
        super().build(shape)

    def call(self, inputs):
        found = {
            "latents": ops.expand_dims(self.latents, 0),
            "data": self.encoder(self.patcher(inputs)),
        }
        for _ in range(self.iterations):
            found["latents"] = self.transformer(self.cross(found))
        return self.head(self.pool(found["latents"]))


@example("vision/perceiver_image_classification", pairs=3)
def perceiver():
    """Two iterations with the same weights."""
    model = Perceiver(2)
    return Built(model, images())
