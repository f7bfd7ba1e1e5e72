"""The plain gated FFN, and the arithmetic it shares with the prunable one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea.layers.ffn_arguments import (
    Activation,
    Constraint,
    Initializer,
    Regularizer,
    build_ffn,
    ffn_config,
    set_ffn_arguments,
)
from keras_idea.typing import Tensor


def gated_ffn(
    inputs: Tensor,
    up: Tensor,
    gate: Tensor,
    down: Tensor,
    biases: tuple[Tensor, Tensor, Tensor] | None,
    activation: Callable[[Tensor], Tensor],
    hidden: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""`down^T (activation(up^T x) * (gate^T x))`, with biases where given.

    Args:
        inputs: tensor `(..., input_dim)`.
        up: tensor `(input_dim, hidden_dim)`, the activated matrix.
        gate: tensor `(input_dim, hidden_dim)`, the linear matrix.
        down: tensor `(hidden_dim, input_dim)`.
        biases: None, or the biases of up, gate and down.
        activation: function of a tensor.
        hidden: function of the hidden activations `(..., hidden_dim)`, which down
            then multiplies; None: the identity.

    Returns:
        Tensor of the shape of `inputs`.
    """
    # The tokens as the rows of one matrix: XLA on a CPU computes the gradient of a
    # product with a tensor of rank 3 through transposed copies, three times slower.
    axes = ops.shape(inputs)[:-1]
    rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
    up_out, gate_out = ops.matmul(rows, up), ops.matmul(rows, gate)
    if biases is not None:
        up_bias, gate_bias, down_bias = biases
        up_out, gate_out = up_out + up_bias, gate_out + gate_bias
    activations = activation(up_out) * gate_out
    if hidden is not None:
        # It sees which tokens are one sample's.
        shape = activations.shape
        activations = hidden(ops.reshape(activations, (*axes, shape[-1])))
        activations = ops.reshape(activations, (-1, shape[-1]))
    outputs = ops.matmul(activations, down)
    if biases is not None:
        outputs = outputs + down_bias
    return ops.reshape(outputs, (*axes, inputs.shape[-1]))


def ffn_kernels(layer: keras.layers.Layer) -> tuple[Tensor, Tensor, Tensor]:
    """The kernels up, gate and down of a layer, as tensors of compute dtype."""
    return layer.up_kernel.value, layer.gate_kernel.value, layer.down_kernel.value


def ffn_biases(
    layer: keras.layers.Layer,
) -> tuple[keras.Variable, keras.Variable, keras.Variable] | None:
    """The biases of up, gate and down, or None."""
    if not layer.use_bias:
        return None
    return layer.up_bias, layer.gate_bias, layer.down_bias


def weights_with_axes(
    layer: keras.layers.Layer,
) -> list[tuple[keras.Variable, int | None]]:
    """List of (weight, axis of its neurons or None) of an FFN, the kernels first."""
    weights = (layer.up_kernel, layer.gate_kernel, layer.down_kernel)
    weights += ffn_biases(layer) or ()
    axes = (1, 1, 0, 0, 0, None)
    return list(zip(weights, axes[: len(weights)], strict=True))


def check_loaded_width(name: str, hidden_dim: int, found: int) -> None:
    """Refuses a file of another width, in words that say what to use.

    Args:
        name: str, the layer's path.
        hidden_dim: int, neurons that the layer has.
        found: int, neurons of that layer in the file.

    Raises:
        ValueError: if they differ.
    """
    if hidden_dim != found:
        raise ValueError(
            f"The file holds {found} neurons of '{name}', which has {hidden_dim}: it "
            "was saved before or after the model became narrower. Load the model whole "
            "(keras.saving.load_model), or restore a run by "
            "keras_idea.Checkpoint(folder).restore(model), which narrows the model; or "
            f"make the model with {found} neurons."
        )


def check_loaded_ffn(layer: keras.layers.Layer, store: Mapping[str, Any]) -> None:
    """Refuses a file that holds nothing of a layer, or another width of it.

    Args:
        layer: a built `GatedFFN` or `PrunableGatedFFN`.
        store: what Keras gives `load_own_variables`.

    Raises:
        ValueError: saying what the file is of.
    """
    if not store.keys():
        raise ValueError(
            f"The file holds nothing of '{layer.path}'. Keras finds weights by the "
            f"class of their layer, so the file is of a model without this "
            f"{type(layer).__name__}: load it into a model of the same layers "
            "(GatedFFN, or PrunableGatedFFN), and use keras_idea.compact to go from "
            "PrunableGatedFFN to GatedFFN."
        )
    check_loaded_width(layer.path, layer.hidden_dim, store["0"].shape[1])


@keras.saving.register_keras_serializable(package="keras_idea")
class GatedFFN(keras.layers.Layer):
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
        set_ffn_arguments(
            self,
            hidden_dim,
            activation,
            use_bias,
            kernel=(kernel_initializer, kernel_regularizer, kernel_constraint),
            bias=(bias_initializer, bias_regularizer, bias_constraint),
        )

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Makes the variables for inputs `(..., input_dim)`."""
        build_ffn(self, input_shape)

    def call(self, inputs: Tensor) -> Tensor:
        """The layer's output, of the shape of `inputs`."""
        up, gate, down = ffn_kernels(self)
        return gated_ffn(inputs, up, gate, down, ffn_biases(self), self.activation)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes the kernels from a file, which must be of this width."""
        check_loaded_ffn(self, store)
        super().load_own_variables(store)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """The input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments."""
        return {**super().get_config(), **ffn_config(self)}
