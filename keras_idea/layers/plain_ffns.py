"""The plain FFNs, with a gate and without."""

from typing import Any

import keras

from keras_idea.layers.ffn_layer import (
    GATED,
    UNGATED,
    Activation,
    Constraint,
    FFNLayer,
    Initializer,
    Regularizer,
)
from keras_idea.typing import Tensor


class PlainFFN(FFNLayer):
    """What `GatedFFN` and `UngatedFFN` are: an FFN of the kernels in `matrices`."""

    def call(self, inputs: Tensor) -> Tensor:
        """The layer's output, of the shape of `inputs`."""
        return self._feed_forward(inputs)


@keras.saving.register_keras_serializable(package="keras_idea")
class GatedFFN(PlainFFN):
    r"""Gated feed-forward network: three kernels, nothing else.

    $$y = W_{down}^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper; KerasHub and Hugging Face call
    that one "gate", and the linear one "up".

    Args:
        hidden_dim: int >= 1, the number of neurons.
        activation: str or function, `sigma`. Default "silu".
        use_bias: bool, whether the three matrices have biases. Default False.
        kernel_initializer: initializer of the three kernels.
        bias_initializer: initializer of the three biases. Default "zeros".
        kernel_regularizer: regularizer of each kernel, as of `keras.layers.Dense`,
            or None (default).
        bias_regularizer: regularizer of each bias, or None (default).
        kernel_constraint: constraint of each kernel, or None (default). Up and gate
            are `(input_dim, hidden_dim)`, down is `(hidden_dim, input_dim)`.
        bias_constraint: constraint of each bias, or None (default).
        **layer_kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`, as of
            every Keras layer.

    Input shape: `(..., input_dim)`, rank 2 or more. Output shape: the same.

    Raises:
        ValueError: for an argument outside its range.

    Example:
    >>> layer = GatedFFN(hidden_dim=32)
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)

    Reference: Shazeer, 2020 (GLU variants, arXiv 2002.05202).
    """

    matrices = GATED

    def __init__(
        self,
        hidden_dim: int,
        activation: Activation = "silu",
        *,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **layer_kwargs: Any,
    ) -> None:
        super().__init__(**layer_kwargs)
        kernel = kernel_initializer, kernel_regularizer, kernel_constraint
        bias = bias_initializer, bias_regularizer, bias_constraint
        self._set_arguments(hidden_dim, activation, use_bias, kernel, bias)


@keras.saving.register_keras_serializable(package="keras_idea")
class UngatedFFN(PlainFFN):
    r"""Feed-forward network without a gate: two kernels, nothing else.

    $$y = W_{down}^T \, \sigma(W_{up}^T x)$$

    Args:
        hidden_dim: int >= 1, the number of neurons.
        activation: str or function, `sigma`. Default "gelu".
        use_bias: bool, whether the two matrices have biases. Default False.
        kernel_initializer: initializer of the two kernels.
        bias_initializer: initializer of the two biases. Default "zeros".
        kernel_regularizer: regularizer of each kernel, as of `keras.layers.Dense`,
            or None (default).
        bias_regularizer: regularizer of each bias, or None (default).
        kernel_constraint: constraint of each kernel, or None (default). Up is
            `(input_dim, hidden_dim)`, down is `(hidden_dim, input_dim)`.
        bias_constraint: constraint of each bias, or None (default).
        **layer_kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`, as of
            every Keras layer.

    Input shape: `(..., input_dim)`, rank 2 or more. Output shape: the same.

    Raises:
        ValueError: for an argument outside its range.

    Example:
    >>> layer = UngatedFFN(hidden_dim=32)
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)

    Reference: Vaswani et al., 2017 (Attention is all you need, arXiv 1706.03762).
    """

    matrices = UNGATED

    def __init__(
        self,
        hidden_dim: int,
        activation: Activation = "gelu",
        *,
        use_bias: bool = False,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **layer_kwargs: Any,
    ) -> None:
        super().__init__(**layer_kwargs)
        kernel = kernel_initializer, kernel_regularizer, kernel_constraint
        bias = bias_initializer, bias_regularizer, bias_constraint
        self._set_arguments(hidden_dim, activation, use_bias, kernel, bias)
