"""A decoder-only language model of Keras layers, and the config of a tiny one."""

import dataclasses

import keras
import numpy as np
from keras import ops

from keras_idea._layers import PrunableGatedFFN


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """The shape of a decoder."""

    vocabulary_size: int
    model_dim: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    sequence_length: int
    num_key_value_heads: int | None = None


TINY = DecoderConfig(
    vocabulary_size=19,
    model_dim=16,
    num_layers=2,
    num_heads=4,
    num_key_value_heads=2,
    hidden_dim=24,
    sequence_length=12,
)


def rotary(x):
    """Rotates the features (batch, tokens, heads, features) by the token's place."""
    pairs = x.shape[-1] // 2
    frequency = ops.convert_to_tensor(10000.0 ** (-np.arange(pairs) / pairs), "float32")
    angle = ops.outer(ops.arange(ops.shape(x)[1], dtype="float32"), frequency)
    cos, sin = ops.expand_dims(ops.cos(angle), 1), ops.expand_dims(ops.sin(angle), 1)
    real, imaginary = ops.split(ops.cast(x, "float32"), 2, axis=-1)
    y = ops.concatenate(
        [real * cos - imaginary * sin, real * sin + imaginary * cos], axis=-1
    )
    return ops.cast(y, keras.backend.standardize_dtype(x.dtype))


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Attention(keras.layers.Layer):
    """Causal self-attention with rotary positions; query heads share keys."""

    def __init__(self, num_heads, num_key_value_heads=None, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads or num_heads

    def build(self, input_shape):
        dim = input_shape[-1]
        self.head_dim = dim // self.num_heads
        narrow = self.num_key_value_heads * self.head_dim
        for name, units in {
            "query": dim,
            "key": narrow,
            "value": narrow,
            "output": dim,
        }.items():
            layer = keras.layers.Dense(
                units, use_bias=False, dtype=self.dtype_policy, name=name
            )
            layer.build(input_shape)
            setattr(self, f"{name}_dense", layer)

    def call(self, x):
        tokens, flat = ops.shape(x)[1], ops.reshape(x, (-1, x.shape[-1]))
        groups = self.num_key_value_heads
        q, k, v = (
            ops.reshape(layer(flat), (-1, tokens, heads, self.head_dim))
            for layer, heads in (
                (self.query_dense, self.num_heads),
                (self.key_dense, groups),
                (self.value_dense, groups),
            )
        )
        q, k = rotary(q), rotary(k)
        if self.num_heads > groups:
            k, v = (
                ops.repeat(each, self.num_heads // groups, axis=2) for each in (k, v)
            )
        y = ops.dot_product_attention(q, k, v, is_causal=True)
        y = self.output_dense(ops.reshape(y, (-1, x.shape[-1])))
        return ops.reshape(y, ops.shape(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
        }


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class DecoderBlock(keras.layers.Layer):
    """A pre-norm block around a given FFN."""

    def __init__(self, ffn, num_heads, num_key_value_heads=None, **kwargs):
        super().__init__(**kwargs)
        self.ffn = ffn
        self.heads = num_heads, num_key_value_heads
        self.attention = Attention(
            *self.heads, dtype=self.dtype_policy, name="attention"
        )
        self.attention_norm, self.ffn_norm = (
            keras.layers.RMSNormalization(
                epsilon=1e-5, dtype=self.dtype_policy, name=name
            )
            for name in ("attention_norm", "ffn_norm")
        )

    def build(self, input_shape):
        for layer in (self.attention_norm, self.attention, self.ffn_norm, self.ffn):
            if not layer.built:
                layer.build(input_shape)

    def call(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        ffn = keras.saving.serialize_keras_object(self.ffn)
        names = "num_heads", "num_key_value_heads"
        return {
            **super().get_config(),
            "ffn": ffn,
            **dict(zip(names, self.heads, strict=True)),
        }

    @classmethod
    def from_config(cls, config):
        ffn = keras.saving.deserialize_keras_object(config["ffn"])
        return cls(**{**config, "ffn": ffn})


def decoder(config, ffn=PrunableGatedFFN, dtype=None):
    """Makes a functional model from token ids to float32 logits."""
    ids = keras.Input((None,), dtype="int32", name="token_ids")
    start = keras.initializers.RandomNormal(stddev=0.02)
    x = keras.layers.Embedding(
        config.vocabulary_size,
        config.model_dim,
        embeddings_initializer=start,
        dtype=dtype,
        name="token_embedding",
    )(ids)
    for i in range(config.num_layers):
        x = DecoderBlock(
            ffn(config.hidden_dim, name=f"ffn_{i}", dtype=dtype),
            config.num_heads,
            config.num_key_value_heads,
            dtype=dtype,
            name=f"block_{i}",
        )(x)
    x = keras.layers.RMSNormalization(epsilon=1e-5, dtype=dtype, name="final_norm")(x)
    logits = keras.layers.Dense(
        config.vocabulary_size,
        use_bias=False,
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
        dtype=dtype,
        name="logits",
    )(x)
    logits = keras.layers.Identity(dtype="float32", name="logits_float32")(logits)
    return keras.Model(ids, logits, name="decoder")
