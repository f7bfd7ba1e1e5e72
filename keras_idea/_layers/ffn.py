"""The FFN layers: with a gate or without, plain or with a pruning state on view."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_idea._groups.cut import Cut, used_neurons
from keras_idea._groups.state import NeuronState, Scoring, indices_of
from keras_idea._typing import Tensor
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError
from keras_idea.functional.by_numbers import why_not_each_number

#: Argument -> the module of Keras that reads it and writes it into a config.
_OPTIONS = {
    "kernel_initializer": keras.initializers,
    "bias_initializer": keras.initializers,
    "kernel_regularizer": keras.regularizers,
    "bias_regularizer": keras.regularizers,
    "kernel_constraint": keras.constraints,
    "bias_constraint": keras.constraints,
}


class FFNLayer(keras.layers.Layer):
    """Base class of the FFNs; if `gated`, a linear branch multiplies the other."""

    gated: ClassVar[bool] = True

    def __init__(
        self,
        hidden_dim: int,
        activation: Any = "silu",
        *,
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **layer_kwargs: Any,
    ) -> None:
        super().__init__(**layer_kwargs)
        self._hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.supports_masking = True

    @property
    def hidden_dim(self) -> int:
        """int, the FFN width: once it is built, that of its kernels."""
        return int(self.down_kernel.shape[0]) if self.built else self._hidden_dim

    @property
    def matrices(self) -> tuple[str, ...]:
        """Tuple of str, the names of the kernels: down comes last."""
        return ("up", "gate", "down") if self.gated else ("up", "down")

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the variables for inputs `(..., input_dim)`."""
        input_dim = input_shape[-1]
        wide, back = (input_dim, self.hidden_dim), (self.hidden_dim, input_dim)
        shapes = [back if name == "down" else wide for name in self.matrices]
        for i, (name, shape) in enumerate(zip(self.matrices, shapes, strict=True)):
            setattr(self, f"{name}_kernel", self._add(name, "kernel", i, shape))
        for i, (name, shape) in enumerate(zip(self.matrices, shapes, strict=True)):
            bias = self._add(name, "bias", i, shape[1:]) if self.use_bias else None
            setattr(self, f"{name}_bias", bias)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_dim})

    def _add(
        self, name: str, kind: str, index: int, shape: tuple[int | None, ...]
    ) -> keras.Variable:
        initializer = getattr(self, f"{kind}_initializer")
        return self.add_weight(
            name=f"{name}_{kind}",
            shape=shape,
            initializer=_separate_initializer(initializer, index),
            regularizer=getattr(self, f"{kind}_regularizer"),
            constraint=getattr(self, f"{kind}_constraint"),
        )

    def _kernels(self) -> list[keras.Variable]:
        return [getattr(self, f"{name}_kernel") for name in self.matrices]

    def _biases(self) -> list[keras.Variable]:
        """As many as kernels; none without `use_bias`."""
        names = self.matrices if self.use_bias else ()
        return [getattr(self, f"{name}_bias") for name in names]

    def call(self, inputs: Tensor) -> Tensor:
        """Returns the output, of the shape of `inputs`."""
        # The tokens as the rows of one matrix: XLA on a CPU computes the gradient of a
        # product with a tensor of rank 3 through transposed copies, three times slower.
        hidden = self.hidden(ops.reshape(inputs, (-1, inputs.shape[-1])))
        outputs = ops.matmul(hidden, ops.convert_to_tensor(self.down_kernel))
        if self.use_bias:
            outputs = outputs + self.down_bias
        return ops.reshape(outputs, ops.shape(inputs))

    def hidden(self, rows: Tensor) -> Tensor:
        """Computes the hidden activations of rows: `(tokens, hidden_dim)`."""
        branches = [
            # Tensors already, where fewer neurons are read (`keras_idea._elastic`).
            ops.matmul(rows, ops.convert_to_tensor(kernel))
            for kernel in self._kernels()[:-1]
        ]
        biases = self._biases()[:-1]
        if biases:
            branches = [x + bias for x, bias in zip(branches, biases, strict=True)]
        activations = self.activation(branches[0])
        return activations * branches[1] if self.gated else activations

    def cuts(self) -> list[Cut]:
        """Returns a `Cut` of each weight that holds neurons, the kernels first."""
        *entrances, down = self._kernels()
        return [
            *(Cut(kernel, 1) for kernel in entrances),
            Cut(down, 0),
            *(Cut(bias, 0) for bias in self._biases()[:-1]),
        ]

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """Returns the shape of the input."""
        return tuple(input_shape)

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments, as objects: no config can hold a lambda."""
        names = ("hidden_dim", "activation", "use_bias", *_OPTIONS)
        return {name: getattr(self, name) for name in names}

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments."""
        config = {**super().get_config(), **self._arguments()}
        config["activation"] = keras.activations.serialize(self.activation)
        for name, module in _OPTIONS.items():
            config[name] = module.serialize(config[name])
        return config


def _separate_initializer(initializer: Any, index: int) -> Any:
    """Copies an initializer: one object would give up and gate the same values."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer  # a plain function
    config = initializer.get_config()
    if not isinstance(getattr(initializer, "seed", None), (int, type(None))):
        return initializer  # a seed generator draws other numbers each time
    if isinstance(config.get("seed"), int):
        config["seed"] += index
    return type(initializer).from_config(config)


@keras.saving.register_keras_serializable(package="keras_idea")
class GatedFFN(FFNLayer):
    r"""Gated feed-forward network: three kernels, nothing else.

    $$y = W_{down}^T \left(\sigma(W_{up}^T x) \odot W_{gate}^T x\right)$$

    `W_up` is the activated matrix, as in the paper. KerasHub and Hugging Face call it
    "gate", and the linear one "up".

    Args:
        hidden_dim: int >= 1. The FFN width.
        activation: str or function. `sigma`. Defaults to "silu".
        use_bias: bool. Whether the matrices have biases. Defaults to False.
        kernel_initializer: initializer of the kernels. Defaults to "glorot_uniform".
        bias_initializer: initializer of the biases. Defaults to "zeros".
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


@keras.saving.register_keras_serializable(package="keras_idea")
class UngatedFFN(FFNLayer):
    r"""Feed-forward network without a gate: two kernels, nothing else.

    $$y = W_{down}^T \, \sigma(W_{up}^T x)$$

    Args:
        hidden_dim: int >= 1. The FFN width.
        activation: str or function. `sigma`. Defaults to "gelu".
        **options: the other arguments of `GatedFFN`.

    Example:
    >>> layer = UngatedFFN(hidden_dim=32)
    >>> tuple(layer(keras.ops.ones((2, 5, 8))).shape)
    (2, 5, 8)

    Reference: Vaswani et al., 2017 (Attention is all you need, arXiv 1706.03762).
    """

    gated = False

    def __init__(
        self, hidden_dim: int, activation: Any = "gelu", **options: Any
    ) -> None:
        super().__init__(hidden_dim, activation, **options)


class Prunable(FFNLayer):
    """Base class of the prunable FFNs; `compact` returns a `plain_class`."""

    plain_class: ClassVar[type[FFNLayer]]

    def __init__(
        self, hidden_dim: int, activation: Any = "silu", **options: Any
    ) -> None:
        super().__init__(hidden_dim, activation, **options)
        why_not = why_not_each_number(self.activation, (2, self.hidden_dim))
        if why_not is not None:
            given = getattr(self.activation, "__name__", self.activation)
            raise ArgumentError(
                "`activation` must act on each neuron alone. Received: "
                f"activation={given}, which {why_not}. Use another activation, or "
                f"{self.plain_class.__name__}, which is not pruned then."
            )
        #: `NeuronState`, the layer that holds the scores and the mask.
        self.state = NeuronState(name="neuron_state")

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the variables for inputs `(..., input_dim)`."""
        super().build(input_shape)
        input_dim, hidden_dim = self.up_kernel.shape
        self.state.build((hidden_dim,), input_dim, len(self.matrices))

    @property
    def mask(self) -> keras.Variable:
        """Variable `(hidden_dim,)`, float32 in {0, 1}: 1 marks the active neurons."""
        self._check_built("mask")
        return self.state.mask

    @property
    def scores(self) -> keras.Variable:
        """Variable, float32: the averaged scores of its M matrices.

        `(M, hidden_dim)`; with row_reduce="max", `(M, hidden_dim, input_dim)`.
        """
        self._check_built("scores")
        return self.state.scores

    @property
    def width(self) -> int:
        """int, the number of active neurons: those with a weight other than zero."""
        if not self.built:
            return self.hidden_dim
        return len(indices_of(used_neurons(self.cuts()), self.name))

    def importance(self) -> Tensor:
        """Computes the importance of each neuron, `(hidden_dim,)`, from the scores."""
        self._check_built("importance()")
        return self.state.importance()

    def compact(self) -> FFNLayer:
        """Makes a new plain FFN of the active neurons, with the same outputs."""
        self._check_built("compact()")
        cuts = {id(cut.variable): cut for cut in self.cuts()}
        kept = indices_of(used_neurons([*cuts.values()]), self.name)
        config = {**keras.layers.Layer.get_config(self), **self._arguments()}
        narrow = self.plain_class(**{**config, "hidden_dim": len(kept)})
        narrow.build((None, self.up_kernel.shape[0]))
        weights = [*self._kernels(), *self._biases()]
        for weight, target in zip(weights, narrow.variables, strict=True):
            cut = cuts.get(id(weight))
            target.assign(ops.copy(weight.value) if cut is None else cut.take(kept))
        return narrow

    def get_build_config(self) -> dict[str, Any] | None:
        """Returns what `build_from_config` needs: input shape and pruning state."""
        config = super().get_build_config()
        scoring = dataclasses.asdict(self.state.scoring)
        state = {"full_dim": self.state.full_dim, "scoring": scoring}
        return config and {**config, **state}

    def build_from_config(self, config: dict[str, Any] | None) -> None:
        """Builds the layer as it was saved, before or after narrowing."""
        if config:
            self.state.scoring = Scoring(**config.get("scoring", {}))
            self.build(config["input_shape"])
            self.state.full_dim = config.get("full_dim")

    def _check_built(self, what: str) -> None:
        if not self.built:
            raise ArgumentError(
                f"`{what}` of layer '{self.name}' needs the layer's variables, and "
                "it is not built. Call the layer or its model on data first."
            )


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableGatedFFN(Prunable):
    r"""A `GatedFFN` that shows its pruning state: `mask`, `scores` and `width`.

    It computes what a `GatedFFN` computes, and any optimizer or loop trains the same
    variables. While an `IdeaPruneCallback` prunes it, each optimizer step writes the
    averaged sensitivities `|gradient * weight|` into `scores`, writes `mask`, and sets
    the weights of pruned neurons to zero. Assigning `mask` prunes nothing.

    Args:
        hidden_dim: int >= 1. The FFN width before pruning.
        activation: str or function. It must act on each neuron alone. Defaults to
            "silu".
        **options: the other arguments of `GatedFFN`.

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
        including the regularizers, and before the optimizer's clipping. After pruning
        with `compact="off"`, training without the callback may bring pruned neurons
        back: the optimizer's moments move their weights.

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    plain_class = GatedFFN


@keras.saving.register_keras_serializable(package="keras_idea")
class PrunableFFN(Prunable):
    r"""An `UngatedFFN` that shows its pruning state, as `PrunableGatedFFN` does.

    The importance of a neuron is the larger (or the mean) of its two rows' scores.

    Args:
        hidden_dim: int >= 1. The FFN width before pruning.
        activation: str or function. It must act on each neuron alone. Defaults to
            "gelu".
        **options: the other arguments of `GatedFFN`.

    Example:
    >>> layer = PrunableFFN(hidden_dim=32, activation="relu")
    >>> layer.build((None, 8))
    >>> narrow = layer.compact()  # an UngatedFFN

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1, over the matrices there are.
    """

    gated = False
    plain_class = UngatedFFN

    def __init__(
        self, hidden_dim: int, activation: Any = "gelu", **options: Any
    ) -> None:
        super().__init__(hidden_dim, activation, **options)
