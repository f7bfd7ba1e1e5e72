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
    """Base class of `GatedFFN` and `UngatedFFN`: kernels as in `matrices`."""

    def call(self, inputs: Tensor) -> Tensor:
        """Returns the output, of the shape of `inputs`."""
        return self._feed_forward(inputs)


@keras.saving.register_keras_serializable(package="keras_idea")
class GatedFFN(PlainFFN):
    r"""Gated feed-forward network: three kernels, nothing else.

    $$y = W_{down}^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper. KerasHub and Hugging Face call it
    "gate", and the linear one "up".

    Args:
        hidden_dim: int >= 1. The FFN width.
        activation: str or function. `sigma`. Defaults to "silu".
        use_bias: bool. Whether the three matrices have biases. Defaults to False.
        kernel_initializer: initializer of the kernels. Defaults to "glorot_uniform".
        bias_initializer: initializer of the three biases. Defaults to "zeros".
        kernel_regularizer: regularizer of each kernel or None. Defaults to None.
        bias_regularizer: regularizer of each bias or None. Defaults to None.
        kernel_constraint: constraint of each kernel or None. Up and gate: `(input_dim,
            hidden_dim)`, down: `(hidden_dim, input_dim)`. Defaults to None.
        bias_constraint: constraint of each bias or None. Defaults to None.
        **layer_kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`, as of
            every Keras layer.

    Input shape: `(..., input_dim)`, rank 2 or more. Output shape: the same.

    Raises:
        ValueError: If an argument is outside its range.

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
        hidden_dim: int >= 1. The FFN width.
        activation: str or function. `sigma`. Defaults to "gelu".
        use_bias: bool. Whether the two matrices have biases. Defaults to False.
        kernel_initializer: initializer of the kernels. Defaults to "glorot_uniform".
        bias_initializer: initializer of the two biases. Defaults to "zeros".
        kernel_regularizer: regularizer of each kernel or None. Defaults to None.
        bias_regularizer: regularizer of each bias or None. Defaults to None.
        kernel_constraint: constraint of each kernel or None. Up is `(input_dim,
            hidden_dim)`, down is `(hidden_dim, input_dim)`. Defaults to None.
        bias_constraint: constraint of each bias or None. Defaults to None.
        **layer_kwargs: `name`, `dtype`, `trainable`, `activity_regularizer`, as of
            every Keras layer.

    Input shape: `(..., input_dim)`, rank 2 or more. Output shape: the same.

    Raises:
        ValueError: If an argument is outside its range.

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
