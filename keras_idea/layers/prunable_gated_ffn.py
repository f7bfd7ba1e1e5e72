"""The gated FFN that ranks its neurons while it trains, and prunes them."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_idea.functional.importance import Reduction
from keras_idea.functional.masks import take_neurons
from keras_idea.keras_private.call_context import mask_of
from keras_idea.layers.ffn_arguments import (
    Activation,
    Constraint,
    Initializer,
    Regularizer,
    build_ffn,
    ffn_config,
    set_ffn_arguments,
)
from keras_idea.layers.gated_ffn import (
    GatedFFN,
    check_loaded_ffn,
    ffn_biases,
    ffn_kernels,
    gated_ffn,
    weights_with_axes,
)
from keras_idea.layers.neuron_state import NeuronState
from keras_idea.typing import Tensor


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableGatedFFN(keras.layers.Layer):
    r"""Gated FFN whose neurons can be pruned inside the compiled train step.

    $$y = (m \odot W_{down})^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper; KerasHub and Hugging Face call
    that one "gate", and the linear one "up".

    By itself it is a `GatedFFN` with a mask: it has the trainable variables of one,
    is trained like one, by whatever optimizer or loop, and what is masked stays so.
    While an `IdeaPruneCallback` is at work, each step of the optimizer averages the
    sensitivity `|gradient * weight|` of the kernels into `scores`, and masks the
    neurons of least importance by the callback's schedule; a pruned neuron never
    comes back. The gradient is the one that the optimizer is given: the sum over the
    layer's calls, the mean over the micro-batches of an accumulated step, unscaled,
    with the regularizers' share, and before the optimizer's own clipping. Weights of
    pruned neurons are zero, and Keras's constraints leave them so; after pruning with
    `compact="off"` the optimizer's moments may move them (on jax an L1 regularizer
    too, whose gradient at 0 is not 0), and then regularizers and constraints count
    them, as nothing else does.

    Args:
        hidden_dim: int >= 1, the number of neurons of the enlarged layer.
        activation: str or function, applied to the `up` branch. Default "silu".
        use_bias: bool, whether the three matrices have biases. Default False.
        ema_decay: float in [0, 1), weight of the past in the scores. Default 0.4.
        row_reduce: "mean" (default) or "max", over the weights of a neuron's
            row. "max" keeps scores of every weight: `(3, hidden_dim, input_dim)`.
        matrix_reduce: "mean" or "max" (default), over up, gate and down.
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

    def __init__(
        self,
        hidden_dim: int,
        activation: Activation = "silu",
        *,
        use_bias: bool = False,
        ema_decay: float = 0.4,
        row_reduce: Reduction = "mean",
        matrix_reduce: Reduction = "max",
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
        self.state = NeuronState(
            ema_decay, row_reduce, matrix_reduce, name="neuron_state"
        )

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Makes the variables for inputs `(..., input_dim)`."""
        build_ffn(self, input_shape)
        self.state.build(self.hidden_dim, self.up_kernel.shape[0])

    def call(self, inputs: Tensor) -> Tensor:
        """The layer's output, of the shape of `inputs`."""
        up, gate, down = ffn_kernels(self)
        down = self.state.masked(down)
        # Not as an argument, which the narrow layer in its place would be given too.
        hidden = functools.partial(self.state.hidden, mask=mask_of(inputs))
        biases = ffn_biases(self)
        return gated_ffn(inputs, up, gate, down, biases, self.activation, hidden)

    @property
    def mask(self) -> keras.Variable:
        """Variable `(hidden_dim,)`, float32 in {0, 1}: which neurons live."""
        self._check_built("mask")
        return self.state.mask

    @property
    def scores(self) -> keras.Variable:
        """Variable `(3, hidden_dim)`, float32: moving averages, up, gate, down."""
        self._check_built("scores")
        return self.state.scores

    @property
    def width(self) -> int:
        """int, the neurons alive now."""
        return len(self.state.kept_neurons()) if self.built else self.hidden_dim

    def importance(self) -> Tensor:
        """Importance of each neuron by the present scores.

        Returns:
            Tensor `(hidden_dim,)`, float32, at least zero.
        """
        self._check_built("importance()")
        return self.state.importance()

    def compact(self) -> GatedFFN:
        """A new `GatedFFN` of the living neurons, with the same outputs.

        Returns:
            A built `GatedFFN` with `hidden_dim == width`; this layer is left as
            it is.

        Raises:
            ValueError: if the layer is not built, or a pruning method is in the
                middle of measuring it.
        """
        self._check_built("compact()")
        if self.state.probe is not None:
            raise ValueError(
                f"Layer '{self.name}' still has the probe of a pruning method, which "
                "changes what it computes. End it with `callback.on_train_end()`, "
                "before compact()."
            )
        kept = self.state.kept_neurons()
        narrow = self.plain(len(kept))
        narrow.build((None, self.up_kernel.shape[0]))
        pairs = zip(self.weights_with_axes(), narrow.variables, strict=True)
        for (weight, axis), target in pairs:
            target.assign(take_neurons(weight.value, kept, axis))
        return narrow

    def plain(self, hidden_dim: int) -> GatedFFN:
        """An unbuilt `GatedFFN` of the same arguments, but `hidden_dim`."""
        config = {**keras.layers.Layer.get_config(self), **ffn_config(self)}
        return GatedFFN.from_config({**config, "hidden_dim": hidden_dim})

    def weights_with_axes(self) -> list[tuple[keras.Variable, int | None]]:
        """List of (weight, axis of its neurons or None), the kernels first."""
        return weights_with_axes(self)

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Follows kernels that were narrowed in place."""
        self.hidden_dim = hidden_dim

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """The input's shape."""
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Dict of the constructor's arguments."""
        state = {
            "ema_decay": self.state.ema_decay,
            "row_reduce": self.state.row_reduce,
            "matrix_reduce": self.state.matrix_reduce,
        }
        return {**super().get_config(), **ffn_config(self), **state}

    def get_build_config(self) -> dict[str, Any] | None:
        """What `build_from_config` needs: the shape, and what the state holds."""
        config = super().get_build_config()
        probe = self.state.probe
        if probe is not None:
            probe = keras.saving.serialize_keras_object(probe)
        state = {"full_dim": self.state.full_dim, "probe": probe}
        return config and {**config, **state}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Builds the layer as it was saved: still to be pruned, or narrowed."""
        if config:
            self.build(config["input_shape"])
            self.state.full_dim = config.get("full_dim", self.hidden_dim)
            if config.get("probe"):
                probe = keras.saving.deserialize_keras_object(config["probe"])
                self.state.set_probe(probe)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes the kernels from a file, which must be of this width."""
        check_loaded_ffn(self, store)
        super().load_own_variables(store)

    def _check_built(self, what: str) -> None:
        if not self.built:
            raise ValueError(
                f"`{what}` of layer '{self.name}' needs the layer's variables, and "
                "it is not built. Call the layer or its model on data first."
            )
