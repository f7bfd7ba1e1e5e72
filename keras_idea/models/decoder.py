"""A decoder-only language model of Keras layers, with the FFN left to choose.

Shapes: B batch, T tokens, D model_dim, V vocabulary_size.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.layers import all_layers
from keras_idea.layers import PrunableGatedFFN
from keras_idea.models.attention import CausalSelfAttention, Shape
from keras_idea.models.config import DecoderConfig
from keras_idea.typing import Tensor

#: The layer whose output is float32, whatever the others compute in.
FLOAT_LOGITS = "logits_float32"


@keras.saving.register_keras_serializable(package="keras_idea")
class DecoderBlock(keras.layers.Layer):
    """A pre-norm transformer block around a given FFN.

        x = x + attention(norm(x))
        y = x + ffn(norm(x))

    The block's config holds the FFN's own config as it is when asked, so a block
    whose FFN was narrowed or replaced saves and loads at its present width.

    Args:
        ffn: keras.layers.Layer, maps (batch, tokens, model_dim) to that shape.
            It stays reachable, and replaceable, as the attribute `ffn`.
        num_heads: int, query heads.
        num_key_value_heads: int or None, key/value heads. Defaults to None: as
            many as query heads.
        rope_max_wavelength: float, see `rotary`. Defaults to 10000.
        rms_norm_epsilon: float, added to the mean square before the root.
            Defaults to 1e-5.
        head_dim: int or None, features of a head. Defaults to None: model_dim /
            num_heads.
        **kwargs: arguments of `keras.layers.Layer` (name, dtype, trainable).

    Call arguments:
        x_BTD: float tensor (batch, tokens, model_dim).

    Returns:
        Float tensor (batch, tokens, model_dim).

    Raises:
        ValueError: if `ffn` is not a layer, or the heads do not fit, see
            `CausalSelfAttention`.

    Example:
    >>> block = DecoderBlock(PrunableGatedFFN(64), num_heads=4)
    >>> tuple(block(keras.random.normal((2, 16, 32))).shape)
    (2, 16, 32)
    """

    def __init__(
        self,
        ffn: keras.layers.Layer,
        num_heads: int,
        num_key_value_heads: int | None = None,
        rope_max_wavelength: float = 10000.0,
        rms_norm_epsilon: float = 1e-5,
        head_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Checks and keeps the arguments."""
        super().__init__(**kwargs)
        if not isinstance(ffn, keras.layers.Layer):
            raise ArgumentError(
                "`ffn` must be a Keras layer, an object and not its class. Received: "
                f"ffn={ffn!r}. Pass for example `PrunableGatedFFN(hidden_dim)`."
            )
        self.ffn = ffn
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads
        self.rope_max_wavelength = rope_max_wavelength
        self.rms_norm_epsilon = rms_norm_epsilon
        self.head_dim = head_dim
        self.attention = CausalSelfAttention(
            num_heads,
            num_key_value_heads,
            rope_max_wavelength,
            head_dim,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention_norm = self._norm("attention_norm")
        self.ffn_norm = self._norm("ffn_norm")

    def _norm(self, name: str) -> keras.layers.Layer:
        return keras.layers.RMSNormalization(
            epsilon=self.rms_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def build(self, input_shape: Shape) -> None:
        """Builds the sublayers that are not built yet."""
        for layer in (self.attention_norm, self.attention, self.ffn_norm, self.ffn):
            if not layer.built:
                layer.build(input_shape)

    def call(self, x_BTD: Tensor) -> Tensor:
        """Applies the two residual branches."""
        x_BTD = x_BTD + self.attention(self.attention_norm(x_BTD))
        return x_BTD + self.ffn(self.ffn_norm(x_BTD))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the FFN serialized as it is now."""
        return {
            **super().get_config(),
            "ffn": keras.saving.serialize_keras_object(self.ffn),
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "rope_max_wavelength": self.rope_max_wavelength,
            "rms_norm_epsilon": self.rms_norm_epsilon,
            "head_dim": self.head_dim,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "DecoderBlock":
        """Rebuilds the block and its FFN from `get_config()`."""
        config = dict(config)
        config["ffn"] = keras.saving.deserialize_keras_object(config["ffn"])
        return cls(**config)


def decoder(
    config: DecoderConfig,
    ffn: Callable = PrunableGatedFFN,
    dtype: str | keras.DTypePolicy | None = None,
    name: str = "decoder",
) -> keras.Model:
    """Makes a functional model from token ids to the next token's logits.

    Args:
        config: DecoderConfig, the model's shape.
        ffn: callable, `ffn(hidden_dim, name=...)` returns the FFN layer of one
            block. When `dtype` is given it is passed on too. Defaults to
            `PrunableGatedFFN`; `GatedFFN` makes the plain narrow model.
        dtype: str, keras.DTypePolicy or None, for example "mixed_bfloat16".
            Defaults to None: the global policy.
        name: str, the model's name.

    Returns:
        keras.Model, int32 ids (B, T) of any length T to float32 logits (B, T, V);
        logits [:, t] depend on ids [:, :t + 1] only.

    Example:
    >>> config = DecoderConfig(vocabulary_size=256, model_dim=32, num_layers=2,
    ...                        num_heads=4, hidden_dim=64, sequence_length=128)
    >>> model = decoder(config, ffn=lambda h, **kw: PrunableGatedFFN(h, **kw))
    >>> tuple(model(keras.ops.ones((1, 16), "int32")).shape)
    (1, 16, 256)
    """
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    embedding = _embedding(config, dtype)
    x_BTD = embedding(token_ids)
    for i in range(config.num_layers):
        x_BTD = _block(config, ffn, dtype, i)(x_BTD)
    x_BTD = keras.layers.RMSNormalization(
        epsilon=config.rms_norm_epsilon, dtype=dtype, name="final_norm"
    )(x_BTD)
    if config.tie_embeddings:
        logits_BTV = embedding(x_BTD, reverse=True)
    else:
        # Not an untied ReversibleEmbedding: it draws both of its matrices from
        # one seeded initializer, so the same numbers fill both.
        logits_BTV = keras.layers.Dense(
            config.vocabulary_size,
            use_bias=False,
            kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
            dtype=dtype,
            name="logits",
        )(x_BTD)
    # The product runs in the compute dtype, the loss must not.
    logits_BTV = keras.layers.Identity(dtype="float32", name=FLOAT_LOGITS)(logits_BTV)
    return keras.Model(token_ids, logits_BTV, name=name)


def _embedding(
    config: DecoderConfig, dtype: str | keras.DTypePolicy | None
) -> keras.layers.Layer:
    tied = config.tie_embeddings
    layer = keras.layers.ReversibleEmbedding if tied else keras.layers.Embedding
    return layer(
        config.vocabulary_size,
        config.model_dim,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.02),
        dtype=dtype,
        name="token_embedding",
    )


def _block(
    config: DecoderConfig, ffn: Callable, dtype: str | keras.DTypePolicy | None, i: int
) -> DecoderBlock:
    # Only when given, so that a callable of (hidden_dim, name) is enough.
    arguments = {} if dtype is None else {"dtype": dtype}
    head_dim = None if config.attention_dim is None else config.head_dim
    return DecoderBlock(
        # Numbered: an FFN built outside its block has its own name alone as its
        # variables' path, and torch needs those to be unique in a model.
        ffn(config.hidden_dim, name=f"ffn_{i}", **arguments),
        num_heads=config.num_heads,
        num_key_value_heads=config.num_key_value_heads,
        rope_max_wavelength=config.rope_max_wavelength,
        rms_norm_epsilon=config.rms_norm_epsilon,
        head_dim=head_dim,
        dtype=dtype,
        name=f"block_{i}",
    )


def compute_in(model: keras.Model, dtype: str) -> keras.Model:
    """Has every layer of a model compute in a dtype; the weights stay float32.

    No functions of it may be traced yet.
    """
    if dtype in ("bfloat16", "float16"):
        dtype = f"mixed_{dtype}"  # whose layers cast their weights, which others do not
    for layer in all_layers(model):
        # The loss must not be computed in less, see `decoder`.
        if layer.name != FLOAT_LOGITS:
            layer.dtype_policy = dtype
    return model
