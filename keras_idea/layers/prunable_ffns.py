"""The FFNs that rank their neurons while they train, and prune them."""

from typing import Any

import keras

from keras_idea.groups.state import NeuronState
from keras_idea.layers.ffn_layer import (
    GATED,
    UNGATED,
    Activation,
    Constraint,
    Initializer,
    Regularizer,
)
from keras_idea.layers.plain_ffns import GatedFFN, UngatedFFN
from keras_idea.layers.prunable import Prunable


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableGatedFFN(Prunable):
    r"""Gated FFN whose neurons can be pruned inside the compiled train step.

    $$y = (m \odot W_{down})^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper. KerasHub and Hugging Face call it
    "gate", and the linear one "up".

    Without a callback it is a `GatedFFN` with a mask: any optimizer or loop trains the
    same variables, and masked neurons stay masked. In each optimizer step, an
    `IdeaPruneCallback` averages the sensitivity `|gradient * weight|` of the kernels
    into `scores`. With method "sensitivity" it masks the least important neurons by its
    schedule. A pruned neuron never becomes active again.

    Args:
        hidden_dim: int >= 1. The FFN width before pruning.
        activation: str or function. Applied to the `up` branch. Defaults to "silu".
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
    >>> layer = PrunableGatedFFN(hidden_dim=32)
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)
    >>> layer.width
    32
    >>> narrow = layer.compact()  # a GatedFFN

    Notes:
        The gradient is the one that the optimizer receives: the sum over the layer's
        calls, the mean over the micro-batches of an accumulated step, unscaled,
        including the regularizers, and before the optimizer's clipping. The weights of
        neurons pruned by the schedule are zero, and Keras's constraints keep them zero.
        After pruning with `compact="off"`, the optimizer's moments may move them (on
        jax also an L1 regularizer, whose gradient at 0 is not 0). Then only
        regularizers and constraints count them.

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    matrices, plain_class = GATED, GatedFFN

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
        self.state = NeuronState(name="neuron_state")


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableFFN(Prunable):
    r"""FFN without a gate whose neurons can be pruned inside the compiled train step.

    $$y = (m \odot W_{down})^T \, \sigma(W_{up}^T x)$$

    It works like `PrunableGatedFFN`, with two matrices instead of three: the importance
    of a neuron is the larger (or the mean) of its two rows' scores.

    Args:
        hidden_dim: int >= 1. The FFN width before pruning.
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
    >>> layer = PrunableFFN(hidden_dim=32, activation="relu")
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)
    >>> narrow = layer.compact()  # an UngatedFFN

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1, over the matrices there are.
    """

    matrices, plain_class = UNGATED, UngatedFFN

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
        self.state = NeuronState(name="neuron_state")
