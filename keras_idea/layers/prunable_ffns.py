"""The FFNs that rank their neurons while they train, and prune them."""

from typing import Any

import keras

from keras_idea.layers.ffn_layer import (
    GATED,
    UNGATED,
    Activation,
    Constraint,
    Initializer,
    Regularizer,
)
from keras_idea.layers.neuron_state import NeuronState
from keras_idea.layers.plain_ffns import GatedFFN, UngatedFFN
from keras_idea.layers.prunable import Prunable


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableGatedFFN(Prunable):
    r"""Gated FFN whose neurons can be pruned inside the compiled train step.

    $$y = (m \odot W_{down})^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper; KerasHub and Hugging Face call
    that one "gate", and the linear one "up".

    Alone, it is a `GatedFFN` with a mask: it has the trainable variables of one,
    is trained like one, by whatever optimizer or loop, and what is masked stays so.
    While an `IdeaPruneCallback` is at work, each step of the optimizer averages the
    sensitivity `|gradient * weight|` of the kernels into `scores`, and with method
    "sensitivity" masks the neurons of least importance by the callback's schedule; a
    pruned neuron never comes back. The gradient is the one that the optimizer is
    given: the sum over the layer's calls, the mean over the micro-batches of an
    accumulated step, unscaled, with the regularizers' share, and before the
    optimizer's own clipping. Weights of neurons pruned so are zero, and Keras's
    constraints leave them so; after pruning with `compact="off"` the optimizer's
    moments may move them (on jax an L1 regularizer too, whose gradient at 0 is not 0),
    and then regularizers and constraints count them, as nothing else does.

    Args:
        hidden_dim: int >= 1, the number of neurons of the enlarged layer.
        activation: str or function, applied to the `up` branch. Default "silu".
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
    >>> layer = PrunableGatedFFN(hidden_dim=32)
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)
    >>> layer.width
    32
    >>> narrow = layer.compact()  # a GatedFFN

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

    As `PrunableGatedFFN`, which see, with two matrices instead of three: a neuron's
    importance is the larger (or the mean) of its two rows' scores.

    Args:
        hidden_dim: int >= 1, the number of neurons of the enlarged layer.
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
