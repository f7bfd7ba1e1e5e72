"""The plain gated FFN, and the arithmetic it shares with the prunable one."""

import keras
from keras import ops

from keras_idea.validation import check_int


def gated_ffn(inputs, up, gate, down, biases, activation, hidden=None):
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


def set_ffn_arguments(layer, hidden_dim, activation, use_bias, kernel_initializer):
    """Checks the arguments both layers share and sets them on `layer`."""
    layer.hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
    if not isinstance(use_bias, bool):
        raise ValueError(
            f"`use_bias` must be True or False. Received: use_bias={use_bias!r}."
        )
    layer.activation = keras.activations.get(activation)
    layer.use_bias = use_bias
    layer.kernel_initializer = keras.initializers.get(kernel_initializer)
    layer.supports_masking = True


def build_ffn(layer, input_shape):
    """Makes the three kernels, and the biases if the layer has them."""
    if len(input_shape) < 2 or input_shape[-1] is None:
        raise ValueError(
            f"{type(layer).__name__} needs inputs of rank >= 2 whose last dimension "
            f"is known. Received: input_shape={tuple(input_shape)}. Give the input a "
            "batch axis and a static feature size."
        )
    wide, narrow = (input_shape[-1], layer.hidden_dim), layer.hidden_dim
    shapes = (("up", wide), ("gate", wide), ("down", wide[::-1]))
    for index, (name, shape) in enumerate(shapes):
        kernel = layer.add_weight(
            name=f"{name}_kernel",
            shape=shape,
            initializer=_own_initializer(layer.kernel_initializer, index),
        )
        setattr(layer, f"{name}_kernel", kernel)
    for name, size in (("up", narrow), ("gate", narrow), ("down", wide[0])):
        bias = None
        if layer.use_bias:
            bias = layer.add_weight(
                name=f"{name}_bias", shape=(size,), initializer="zeros"
            )
        setattr(layer, f"{name}_bias", bias)
    layer.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: wide[0]})


def _own_initializer(initializer, index):
    """An initializer of its own: one object gives up and gate the same values."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer  # a plain function
    config = initializer.get_config()
    if not isinstance(getattr(initializer, "seed", None), (int, type(None))):
        return initializer  # a seed generator moves on by itself
    if isinstance(config.get("seed"), int):
        config["seed"] += index
    return type(initializer).from_config(config)


def ffn_kernels(layer):
    """The kernels up, gate and down of a layer, as tensors of compute dtype."""
    return layer.up_kernel.value, layer.gate_kernel.value, layer.down_kernel.value


def ffn_biases(layer):
    """The biases of up, gate and down, or None."""
    if not layer.use_bias:
        return None
    return layer.up_bias, layer.gate_bias, layer.down_bias


def check_loaded_width(name, hidden_dim, found):
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


def check_loaded_ffn(layer, store):
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


def ffn_config(layer):
    """The constructor's arguments that both layers share."""
    return {
        "hidden_dim": layer.hidden_dim,
        "activation": keras.activations.serialize(layer.activation),
        "use_bias": layer.use_bias,
        "kernel_initializer": keras.initializers.serialize(layer.kernel_initializer),
    }


@keras.saving.register_keras_serializable(package="keras_idea")
class GatedFFN(keras.layers.Layer):
    r"""Gated feed-forward network: three kernels, nothing else.

    $$y = W_{down}^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    Args:
        hidden_dim: int >= 1, the number of neurons.
        activation: str or function, `sigma`. Default "silu".
        use_bias: bool, whether the three matrices have biases. Default False.
        kernel_initializer: initializer of the three kernels.
        **layer_kwargs: `name`, `dtype`, `trainable`, as of every Keras layer.

    Input shape: `(..., input_dim)`, rank 2 or more. Output shape: the same.

    Raises:
        ValueError: for an argument outside its range.

    Example:
    >>> layer = GatedFFN(hidden_dim=32)
    >>> layer(keras.ops.ones((2, 5, 8))).shape  # (2, 5, 8)

    Reference: Shazeer, 2020 (GLU variants, arXiv 2002.05202).
    """

    def __init__(
        self,
        hidden_dim,
        activation="silu",
        use_bias=False,
        kernel_initializer="glorot_uniform",
        **layer_kwargs,
    ):
        super().__init__(**layer_kwargs)
        set_ffn_arguments(self, hidden_dim, activation, use_bias, kernel_initializer)

    def build(self, input_shape):
        """Makes the variables for inputs `(..., input_dim)`."""
        build_ffn(self, input_shape)

    def call(self, inputs):
        """The layer's output, of the shape of `inputs`."""
        up, gate, down = ffn_kernels(self)
        return gated_ffn(inputs, up, gate, down, ffn_biases(self), self.activation)

    def load_own_variables(self, store):
        """Takes the kernels from a file, which must be of this width."""
        check_loaded_ffn(self, store)
        super().load_own_variables(store)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return tuple(input_shape)

    def get_config(self):
        """Dict of the constructor's arguments."""
        return {**super().get_config(), **ffn_config(self)}
