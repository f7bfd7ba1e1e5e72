"""What every FFN of this package is, from the constructor to the arithmetic."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.groups.cut import Cut
from keras_idea.groups.state import check_loaded_width
from keras_idea.typing import Tensor
from keras_idea.validation import check_int

Activation: TypeAlias = str | Mapping[str, Any] | Callable[..., Any] | None
Initializer: TypeAlias = (
    str | Mapping[str, Any] | keras.initializers.Initializer | Callable[..., Any]
)
Regularizer: TypeAlias = str | Mapping[str, Any] | keras.regularizers.Regularizer | None
Constraint: TypeAlias = str | Mapping[str, Any] | keras.constraints.Constraint | None

# What makes and holds each variable of a kind, as `keras.layers.Dense` has it.
_OF_VARIABLES = {
    "initializer": keras.initializers,
    "regularizer": keras.regularizers,
    "constraint": keras.constraints,
}
_KINDS = ("kernel", "bias")

#: The matrices of an FFN: the activated one, a linear one beside it, the one back.
GATED = ("up", "gate", "down")
UNGATED = ("up", "down")


class FFNLayer(keras.layers.Layer):
    """An FFN of the kernels in `matrices`, down last, and of as many biases or none."""

    matrices: ClassVar[tuple[str, ...]]

    def _set_arguments(
        self,
        hidden_dim: int,
        activation: Activation,
        use_bias: bool,
        kernel: tuple[Initializer, Regularizer, Constraint],
        bias: tuple[Initializer, Regularizer, Constraint],
    ) -> None:
        """Checks the arguments that all FFNs share, and keeps them."""
        self.hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
        if not isinstance(use_bias, bool):
            raise ArgumentError(
                f"`use_bias` must be True or False. Received: use_bias={use_bias!r}."
            )
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        for kind, values in zip(_KINDS, (kernel, bias), strict=True):
            for (name, room), value in zip(_OF_VARIABLES.items(), values, strict=True):
                setattr(self, f"{kind}_{name}", room.get(value))
        self.supports_masking = True

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Creates the variables for inputs `(..., input_dim)`."""
        input_dim, hidden_dim = input_shape[-1], self.hidden_dim
        if len(input_shape) < 2 or input_dim is None:
            raise ArgumentError(
                f"{type(self).__name__} needs inputs of rank >= 2 whose last dimension "
                f"is known. Received: input_shape={tuple(input_shape)}. Give the input "
                "a batch axis and a static feature size."
            )
        shapes = {
            name: (hidden_dim, input_dim) if name == "down" else (input_dim, hidden_dim)
            for name in self.matrices
        }
        for i, (name, shape) in enumerate(shapes.items()):
            setattr(self, f"{name}_kernel", self._add(name, "kernel", i, shape))
        for i, (name, shape) in enumerate(shapes.items()):
            bias = self._add(name, "bias", i, shape[1:]) if self.use_bias else None
            setattr(self, f"{name}_bias", bias)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_dim})

    def _add(
        self, name: str, kind: str, index: int, shape: tuple[int, ...]
    ) -> keras.Variable:
        """Adds the kernel or bias of one of the matrices."""
        return self.add_weight(
            name=f"{name}_{kind}",
            shape=shape,
            initializer=_own_initializer(getattr(self, f"{kind}_initializer"), index),
            regularizer=getattr(self, f"{kind}_regularizer"),
            constraint=getattr(self, f"{kind}_constraint"),
        )

    def _kernels(self) -> list[keras.Variable]:
        return [getattr(self, f"{name}_kernel") for name in self.matrices]

    def _biases(self) -> list[keras.Variable]:
        """As many as kernels; none without `use_bias`."""
        names = self.matrices if self.use_bias else ()
        return [getattr(self, f"{name}_bias") for name in names]

    def _feed_forward(
        self,
        inputs: Tensor,
        masked: Callable[[Tensor], Tensor] | None = None,
        hidden: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """`down^T (activation(up^T x) * (gate^T x))`, without the factor if ungated.

        `masked` is a function of the value of down, `hidden` one of the activations
        `(..., hidden_dim)` that down multiplies.
        """
        # The tokens as the rows of one matrix: XLA on a CPU computes the gradient of a
        # product with a tensor of rank 3 through transposed copies, three times slower.
        axes = ops.shape(inputs)[:-1]
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        # Tensors already, where fewer neurons are read (`keras_idea.elastic`).
        *entrances, down = map(ops.convert_to_tensor, self._kernels())
        if masked is not None:
            down = masked(down)
        biases = self._biases()
        branches = [ops.matmul(rows, kernel) for kernel in entrances]
        if biases:
            branches = [x + bias for x, bias in zip(branches, biases, strict=False)]
        activations = self.activation(branches[0])
        for linear in branches[1:]:
            activations = activations * linear
        if hidden is not None:
            # It sees which tokens are one sample's.
            shape = activations.shape
            activations = hidden(ops.reshape(activations, (*axes, shape[-1])))
            activations = ops.reshape(activations, (-1, shape[-1]))
        outputs = ops.matmul(activations, down)
        if biases:
            outputs = outputs + biases[-1]
        return ops.reshape(outputs, (*axes, inputs.shape[-1]))

    def cuts(self) -> list[Cut]:
        """Returns a `Cut` of each weight that holds neurons, the kernels first."""
        *entrances, down = self._kernels()
        return [
            *(Cut(kernel, 1) for kernel in entrances),
            Cut(down, 0),
            *(Cut(bias, 0, is_bias=True) for bias in self._biases()[:-1]),
        ]

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Sets `hidden_dim` after the kernels were narrowed in place."""
        self.hidden_dim = hidden_dim

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads the kernels from a file, which must have this width."""
        if not store.keys():
            name = type(self).__name__
            raise ArgumentError(
                f"The file holds nothing of '{self.path}' at the place where Keras "
                "looks, which is found by the class of the layer. So it is of a model "
                f"without this {name}: load it into a model of the same layers "
                "(GatedFFN, PrunableGatedFFN, UngatedFFN or PrunableFFN), and use "
                "keras_idea.compact to go from a prunable one to a plain one. Or an "
                "FFN of another width in the file, named in an error above, has made "
                "Keras try again."
            )
        check_loaded_width(self.path, self.hidden_dim, store["0"].shape[1])
        super().load_own_variables(store)

    def compute_output_shape(
        self, input_shape: Sequence[int | None]
    ) -> tuple[int | None, ...]:
        """Returns the shape of the input."""
        return tuple(input_shape)

    def _arguments(self) -> dict[str, Any]:
        """The constructor's arguments that all FFNs share, as objects."""
        names = [f"{kind}_{name}" for name in _OF_VARIABLES for kind in _KINDS]
        return {
            name: getattr(self, name)
            for name in ("hidden_dim", "activation", "use_bias", *names)
        }

    def get_config(self) -> dict[str, Any]:
        """Returns a dict of the constructor's arguments."""
        # What a lambda becomes cannot be read back.
        config = {**super().get_config(), **self._arguments()}
        config["activation"] = keras.activations.serialize(self.activation)
        for name, room in _OF_VARIABLES.items():
            for kind in _KINDS:
                config[f"{kind}_{name}"] = room.serialize(config[f"{kind}_{name}"])
        return config


def _own_initializer(
    initializer: keras.initializers.Initializer | Callable[..., Any], index: int
) -> keras.initializers.Initializer | Callable[..., Any]:
    """An initializer of its own: one object gives up and gate the same values."""
    if not isinstance(initializer, keras.initializers.Initializer):
        return initializer  # a plain function
    config = initializer.get_config()
    if not isinstance(getattr(initializer, "seed", None), (int, type(None))):
        return initializer  # a seed generator moves on by itself
    if isinstance(config.get("seed"), int):
        config["seed"] += index
    return type(initializer).from_config(config)
