"""Causal self-attention with rotary positions and grouped key/value heads.

Keras 3.15 has the attention product but no rotary embedding, so that one is here.

Shapes: B batch, T tokens, D model_dim, N query heads, K key/value heads,
H features of a head, P = H / 2 pairs of features.
"""

from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.models.config import check_head_dim, check_heads
from keras_idea.typing import Tensor
from keras_idea.validation import check_number

#: Sizes of a tensor, int; None where it may be any.
Shape: TypeAlias = tuple[Any, ...]


def rotary(x_BTNH: Tensor, max_wavelength: float = 10000.0) -> Tensor:
    """Turns pairs of features by an angle proportional to the token's position.

    Features p and p + P of a head form one complex number, and

        y_p = x_p * exp(i * t * max_wavelength ** (-p / P)),

    so the product of a rotated query and a rotated key depends on their features
    and on their distance, not on where they stand.

    Args:
        x_BTNH: float tensor (batch, tokens, heads, features of a head), queries or
            keys; the last axis is even and known.
        max_wavelength: float, base of the geometric series of wavelengths, in
            tokens / (2 pi). Defaults to 10000.

    Returns:
        Tensor of the shape and dtype of `x_BTNH`.

    Reference:
        Su et al., RoFormer, arXiv:2104.09864, in the half-split layout of Llama.

    Example:
    >>> tuple(rotary(keras.random.normal((2, 16, 4, 8))).shape)
    (2, 16, 4, 8)
    """
    num_pairs = x_BTNH.shape[-1] // 2
    frequency_P = max_wavelength ** (-np.arange(num_pairs) / num_pairs)
    # In float32 throughout: bfloat16 has no 257, nor most positions beyond it.
    position_T = ops.arange(ops.shape(x_BTNH)[1], dtype="float32")
    angle_TP = ops.outer(position_T, ops.convert_to_tensor(frequency_P, "float32"))
    cos_T1P = ops.expand_dims(ops.cos(angle_TP), 1)
    sin_T1P = ops.expand_dims(ops.sin(angle_TP), 1)
    real, imaginary = ops.split(ops.cast(x_BTNH, "float32"), 2, axis=-1)
    y_BTNH = ops.concatenate(
        [
            real * cos_T1P - imaginary * sin_T1P,
            real * sin_T1P + imaginary * cos_T1P,
        ],
        axis=-1,
    )
    return ops.cast(y_BTNH, keras.backend.standardize_dtype(x_BTNH.dtype))


@keras.saving.register_keras_serializable(package="keras_idea")
class CausalSelfAttention(keras.layers.Layer):
    """Self-attention in which a token sees itself and the tokens before it.

        q, k, v = heads(x Wq), heads(x Wk), heads(x Wv)
        y = softmax(causal(rotary(q) rotary(k)^T / sqrt(H))) v Wo

    Query heads share key/value heads in groups of `num_heads /
    num_key_value_heads` neighbours. No biases, no dropout.

    Args:
        num_heads: int, query heads.
        num_key_value_heads: int or None, key/value heads; divides `num_heads`.
            Defaults to None: as many as query heads.
        rope_max_wavelength: float, see `rotary`. Defaults to 10000.
        head_dim: int or None, features of a head. Defaults to None: model_dim /
            num_heads.
        **kwargs: arguments of `keras.layers.Layer` (name, dtype, trainable).

    Call arguments:
        x_BTD: float tensor (batch, tokens, model_dim).

    Returns:
        Float tensor (batch, tokens, model_dim).

    Raises:
        ValueError: if the heads do not divide each other or the model_dim, or
            the features of a head are odd in number.

    Example:
    >>> layer = CausalSelfAttention(num_heads=4, num_key_value_heads=2)
    >>> tuple(layer(keras.random.normal((2, 16, 32))).shape)
    (2, 16, 32)
    """

    def __init__(
        self,
        num_heads: int,
        num_key_value_heads: int | None = None,
        rope_max_wavelength: float = 10000.0,
        head_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Checks and keeps the arguments."""
        super().__init__(**kwargs)
        self.head_dim: Any = head_dim  # an int once it is built
        self.num_key_value_heads = check_heads(num_heads, num_key_value_heads)
        self.num_heads = num_heads
        self.rope_max_wavelength = check_number(
            "rope_max_wavelength", rope_max_wavelength, minimum=1.0
        )

    def build(self, input_shape: Shape) -> None:
        """Makes the four projections for (batch, tokens, model_dim)."""
        model_dim = input_shape[-1]
        self.head_dim = check_head_dim(model_dim, self.num_heads, self.head_dim)
        query_dim = self.num_heads * self.head_dim
        key_value_dim = self.num_key_value_heads * self.head_dim
        self.query = self._projection("query", query_dim, input_shape)
        self.key = self._projection("key", key_value_dim, input_shape)
        self.value = self._projection("value", key_value_dim, input_shape)
        self.output_projection = self._projection(
            "output", model_dim, (*input_shape[:-1], query_dim)
        )

    def _projection(
        self, name: str, units: int, input_shape: Shape
    ) -> keras.layers.Dense:
        # Dense and a reshape, not EinsumDense over (model_dim, heads, head_dim):
        # glorot_uniform would take such a kernel for a convolution and draw its
        # numbers several times too small.
        layer = keras.layers.Dense(
            units, use_bias=False, dtype=self.dtype_policy, name=name
        )
        layer.build(input_shape)
        return layer

    def call(self, x_BTD: Tensor) -> Tensor:
        """Attends; see the class for shapes."""
        tokens = ops.shape(x_BTD)[1]
        # XLA on a CPU computes the gradient of a product with a tensor of rank 3
        # through transposed copies, three times slower.
        x_ND = ops.reshape(x_BTD, (-1, x_BTD.shape[-1]))
        q_BTNH, k_BTKH, v_BTKH = (
            ops.reshape(layer(x_ND), (-1, tokens, heads, self.head_dim))
            for layer, heads in (
                (self.query, self.num_heads),
                (self.key, self.num_key_value_heads),
                (self.value, self.num_key_value_heads),
            )
        )
        q_BTNH = rotary(q_BTNH, self.rope_max_wavelength)
        k_BTKH = rotary(k_BTKH, self.rope_max_wavelength)
        group_size = self.num_heads // self.num_key_value_heads
        if group_size > 1:
            # Keras 3.15 groups heads itself, but on tensorflow not for K = 1.
            k_BTKH, v_BTKH = (
                ops.repeat(x, group_size, axis=2) for x in (k_BTKH, v_BTKH)
            )
        # jax cannot compile its attention in float16 for a CPU.
        dtype = "float32" if self.compute_dtype == "float16" else self.compute_dtype
        y_BTNH = ops.dot_product_attention(
            *(ops.cast(x, dtype) for x in (q_BTNH, k_BTKH, v_BTKH)), is_causal=True
        )
        y_ND = ops.reshape(y_BTNH, (-1, self.num_heads * self.head_dim))
        return ops.reshape(self.output_projection(y_ND), ops.shape(x_BTD))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "rope_max_wavelength": self.rope_max_wavelength,
            "head_dim": self.head_dim,
        }
