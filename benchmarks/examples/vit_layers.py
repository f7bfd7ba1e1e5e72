"""Vision transformers written with subclassed layers."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, backend_gelu, chain, example, images
from benchmarks.examples.vit import CLASSES, DIM, PatchEncoder, Patches, StochasticDepth


class WindowAttention(layers.Layer):
    """Attention in windows, with a table of relative places: a weight, unnamed."""

    def __init__(self, dim, window, num_heads):
        super().__init__()
        self.dim, self.window, self.num_heads = dim, window, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = layers.Dense(3 * dim)
        self.proj = layers.Dense(dim)

    def build(self, shape):
        places = self.window**2
        self.table = self.add_weight(
            shape=(self.num_heads, places, places), initializer="zeros"
        )

    def call(self, x):
        _, places, dim = x.shape
        each = dim // self.num_heads
        qkv = ops.reshape(self.qkv(x), (-1, places, 3, self.num_heads, each))
        q, k, v = ops.unstack(ops.transpose(qkv, (2, 0, 3, 1, 4)), 3)
        scores = ops.matmul(q * self.scale, ops.transpose(k, (0, 1, 3, 2)))
        weights = keras.activations.softmax(scores + self.table[None], axis=-1)
        found = ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3))
        return self.proj(ops.reshape(found, (-1, places, dim)))


class SwinBlock(layers.Layer):
    """Windows that are shifted, then an MLP of `num_mlp` neurons; no get_config."""

    def __init__(self, dim, num_patch, num_heads, window=2, shift=0, num_mlp=32):
        super().__init__()
        self.num_patch, self.window, self.shift = num_patch, window, shift
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)
        self.attn = WindowAttention(dim, window, num_heads)
        self.drop_path = layers.Dropout(0.03)
        self.norm2 = layers.LayerNormalization(epsilon=1e-5)
        self.mlp = chain(
            layers.Dense(num_mlp),
            layers.Activation(keras.activations.gelu),
            layers.Dropout(0.03),
            layers.Dense(dim),
            layers.Dropout(0.03),
        )

    def call(self, x):
        rows, columns = self.num_patch
        w, dim = self.window, x.shape[-1]
        shortcut, x = x, ops.reshape(self.norm1(x), (-1, rows, columns, dim))
        x = ops.roll(x, (-self.shift, -self.shift), (1, 2))
        x = ops.reshape(x, (-1, rows // w, w, columns // w, w, dim))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, w * w, dim))
        x = ops.reshape(self.attn(x), (-1, rows // w, columns // w, w, w, dim))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, rows, columns, dim))
        x = ops.roll(x, (self.shift, self.shift), (1, 2))
        x = shortcut + self.drop_path(ops.reshape(x, (-1, rows * columns, dim)))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PatchMerging(layers.Layer):
    """Four neighbors side by side, projected."""

    def __init__(self, num_patch, embed_dim):
        super().__init__()
        self.num_patch, self.embed_dim = num_patch, embed_dim
        self.linear = layers.Dense(2 * embed_dim, use_bias=False)

    def call(self, x):
        rows, columns = self.num_patch
        x = ops.reshape(x, (-1, rows, columns, x.shape[-1]))
        parts = [x[:, i::2, j::2, :] for j in (0, 1) for i in (0, 1)]
        x = ops.concatenate(parts, axis=-1)
        return self.linear(ops.reshape(x, (-1, rows * columns // 4, x.shape[-1])))


@example("vision/swin_transformers", pairs=2)
def swin():
    """Two blocks, the second with shifted windows; patches are merged at the end."""
    inputs = keras.Input((8, 8, 3))
    x = PatchEncoder(16, DIM)(Patches(2)(inputs))
    for shift in (0, 1):
        x = SwinBlock(DIM, (4, 4), 2, shift=shift)(x)
    x = layers.GlobalAveragePooling1D()(PatchMerging((4, 4), DIM)(x))
    model = keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))
    return Built(model, images())


class ShiftMlp(layers.Layer):
    """Makes its layers in `build`, of a ratio to the input's width."""

    def __init__(self, ratio, rate, **kwargs):
        super().__init__(**kwargs)
        self.ratio, self.rate = ratio, rate

    def build(self, shape):
        self.mlp = chain(
            layers.Dense(int(self.ratio * shape[-1]), activation=backend_gelu()),
            layers.Dropout(self.rate),
            layers.Dense(shape[-1]),
            layers.Dropout(self.rate),
        )

    def call(self, x):
        return self.mlp(x)


class ShiftBlock(layers.Layer):
    """Parts of the channels move by a pixel; then an MLP."""

    def __init__(self, ratio=2, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        self.ratio, self.rate = ratio, rate

    def build(self, shape):
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.mlp = ShiftMlp(self.ratio, self.rate)
        self.drop_path = StochasticDepth(0.1)

    def call(self, x, training=False):
        parts = ops.split(x, 4, axis=-1)
        parts = [
            ops.roll(part, shift, axis)
            for part, (shift, axis) in zip(
                parts, ((1, 1), (-1, 1), (1, 2), (-1, 2)), strict=True
            )
        ]
        x = ops.concatenate(parts, axis=-1)
        return x + self.drop_path(self.mlp(self.norm(x)), training=training)


class ShiftStage(layers.Layer):
    """Blocks in a list, then a strided convolution; all made in `build`."""

    def __init__(self, depth, merge, **kwargs):
        super().__init__(**kwargs)
        self.depth, self.merge = depth, merge

    def build(self, shape):
        self.blocks = [ShiftBlock() for _ in range(self.depth)]
        if self.merge:
            self.reduce = layers.Conv2D(2 * shape[-1], 2, 2, "same", use_bias=False)

    def call(self, x, training=False):
        for shifted in self.blocks:
            x = shifted(x, training=training)
        return self.reduce(x) if self.merge else x

    def get_config(self):
        return {**super().get_config(), "depth": self.depth, "merge": self.merge}


class ShiftViT(keras.Model):
    """Takes its augmentation as an argument, and does not call it."""

    def __init__(self, augmentation, dim, depths, **kwargs):
        super().__init__(**kwargs)
        self.augmentation = augmentation
        self.projection = layers.Conv2D(dim, 2, 2, "same")
        last = len(depths) - 1
        self.stages = [ShiftStage(d, i != last) for i, d in enumerate(depths)]
        self.pool = layers.GlobalAveragePooling2D()
        self.classifier = layers.Dense(CLASSES)

    def call(self, x, training=False):
        x = self.projection(x)
        for stage in self.stages:
            x = stage(x, training=training)
        return self.classifier(self.pool(x))


@example("vision/shiftvit", pairs=3)
def shiftvit():
    """Two stages, with two blocks and one."""
    augmentation = chain(layers.RandomFlip("horizontal"))
    model = ShiftViT(augmentation, DIM, [2, 1])
    return Built(model, images())


class SqueezeExcite(layers.Layer):
    """Two Dense layers on means over places, made in `build`."""

    def __init__(self, ratio, **kwargs):
        super().__init__(**kwargs)
        self.ratio = ratio

    def get_config(self):
        return {**super().get_config(), "ratio": self.ratio}

    def build(self, shape):
        self.squeeze = layers.GlobalAveragePooling2D(keepdims=True)
        self.reduction = layers.Dense(
            shape[-1] // self.ratio, activation="relu", use_bias=False
        )
        self.excite = layers.Dense(shape[-1], activation="sigmoid", use_bias=False)
        self.multiply = layers.Multiply()

    def call(self, x):
        return self.multiply([x, self.excite(self.reduction(self.squeeze(x)))])


class Trunk(layers.Layer):
    """Residual blocks of convolutions around SqueezeExcite."""

    def __init__(self, depth, dimensions, ratio, **kwargs):
        super().__init__(**kwargs)
        self.depth, self.dimensions, self.ratio = depth, dimensions, ratio

    def get_config(self):
        mine = {n: getattr(self, n) for n in ("depth", "dimensions", "ratio")}
        return {**super().get_config(), **mine}

    def build(self, shape):
        self.blocks = [
            chain(
                layers.LayerNormalization(epsilon=1e-6),
                layers.Conv2D(self.dimensions, 1, activation=backend_gelu()),
                SqueezeExcite(self.ratio),
                layers.Conv2D(self.dimensions, 1, padding="same"),
            )
            for _ in range(self.depth)
        ]
        self.add = layers.Add()
        self.flatten = layers.Reshape((-1, self.dimensions))

    def call(self, x):
        for convolved in self.blocks:
            x = self.add([convolved(x), x])
        return self.flatten(x)


class AttentionPooling(layers.Layer):
    """A class token looks at all places; an MLP of the model's own width."""

    def __init__(self, dimensions, num_classes, **kwargs):
        super().__init__(**kwargs)
        self.dimensions, self.num_classes = dimensions, num_classes
        self.cls = self.add_weight(shape=(1, 1, dimensions), initializer="zeros")

    def get_config(self):
        mine = {"dimensions": self.dimensions, "num_classes": self.num_classes}
        return {**super().get_config(), **mine}

    def build(self, shape):
        self.attention = layers.MultiHeadAttention(1, self.dimensions, dropout=0.2)
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)
        self.mlp = chain(
            layers.Dense(self.dimensions, activation=backend_gelu()),
            layers.Dropout(0.2),
            layers.Dense(self.dimensions, activation=backend_gelu()),
        )
        self.dense, self.flatten = layers.Dense(self.num_classes), layers.Flatten()

    def call(self, x):
        token = ops.repeat(self.cls, ops.shape(x)[0], axis=0)
        x = self.norm1(ops.concatenate([token, x], axis=1))
        x, scores = self.attention(
            query=x[:, 0:1], key=x, value=x, return_attention_scores=True
        )
        token = self.flatten(self.norm2(token + x))
        return self.dense(token + self.mlp(token)), scores


class PatchConvNet(keras.Model):
    """Its parts are arguments, and lie in its config as they are."""

    def __init__(self, stem, trunk, pooling, **kwargs):
        super().__init__(**kwargs)
        self.stem, self.trunk, self.pooling = stem, trunk, pooling

    def get_config(self):
        mine = {"stem": self.stem, "trunk": self.trunk, "pooling": self.pooling}
        return {**super().get_config(), **mine}

    def call(self, images):
        return self.pooling(self.trunk(self.stem(images)))


@example("vision/patch_convnet", pairs=3)
def patch_convnet():
    """Squeeze-and-excitation in two blocks, attention pooling."""
    stem = chain(layers.Conv2D(DIM, 3, 2, "same", activation="gelu"))
    model = PatchConvNet(stem, Trunk(2, DIM, 4), AttentionPooling(DIM, CLASSES))
    return Built(model, images())
