"""What every FFN is made with, from the constructor to the variables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from keras_idea.errors import ArgumentError
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


def set_ffn_arguments(
    layer: keras.layers.Layer,
    hidden_dim: int,
    activation: Activation,
    use_bias: bool,
    kernel: tuple[Initializer, Regularizer, Constraint],
    bias: tuple[Initializer, Regularizer, Constraint],
) -> None:
    """Checks the arguments all FFNs share and sets them on `layer`.

    Args:
        layer: an FFN of this package, or a layer with its attributes.
        hidden_dim: int >= 1.
        activation: str or function.
        use_bias: bool.
        kernel: initializer, regularizer and constraint of the kernels.
        bias: those of the biases.

    Raises:
        ValueError: for an argument outside its range.
    """
    layer.hidden_dim = check_int("hidden_dim", hidden_dim, minimum=1)
    if not isinstance(use_bias, bool):
        raise ArgumentError(
            f"`use_bias` must be True or False. Received: use_bias={use_bias!r}."
        )
    layer.activation = keras.activations.get(activation)
    layer.use_bias = use_bias
    for kind, values in zip(_KINDS, (kernel, bias), strict=True):
        for (name, room), value in zip(_OF_VARIABLES.items(), values, strict=True):
            setattr(layer, f"{kind}_{name}", room.get(value))
    layer.supports_masking = True


def build_ffn(layer: keras.layers.Layer, input_shape: Sequence[int | None]) -> None:
    """Makes the kernels of `layer.matrices`, and the biases if the layer has them."""
    input_dim, hidden_dim = input_shape[-1], layer.hidden_dim
    if len(input_shape) < 2 or input_dim is None:
        raise ArgumentError(
            f"{type(layer).__name__} needs inputs of rank >= 2 whose last dimension "
            f"is known. Received: input_shape={tuple(input_shape)}. Give the input a "
            "batch axis and a static feature size."
        )
    shapes = {
        name: (hidden_dim, input_dim) if name == "down" else (input_dim, hidden_dim)
        for name in layer.matrices
    }
    for i, (name, shape) in enumerate(shapes.items()):
        setattr(layer, f"{name}_kernel", _add(layer, name, "kernel", i, shape))
    for i, (name, shape) in enumerate(shapes.items()):
        bias = _add(layer, name, "bias", i, shape[1:]) if layer.use_bias else None
        setattr(layer, f"{name}_bias", bias)
    layer.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_dim})


def ffn_arguments(layer: keras.layers.Layer) -> dict[str, Any]:
    """The constructor's arguments that all FFNs share, as objects."""
    names = [f"{kind}_{name}" for name in _OF_VARIABLES for kind in _KINDS]
    return {
        name: getattr(layer, name)
        for name in ("hidden_dim", "activation", "use_bias", *names)
    }


def ffn_config(layer: keras.layers.Layer) -> dict[str, Any]:
    """The same as a file holds them. What a lambda becomes cannot be read back."""
    config = ffn_arguments(layer)
    config["activation"] = keras.activations.serialize(layer.activation)
    for name, room in _OF_VARIABLES.items():
        for kind in _KINDS:
            config[f"{kind}_{name}"] = room.serialize(config[f"{kind}_{name}"])
    return config


def _add(
    layer: keras.layers.Layer, name: str, kind: str, index: int, shape: tuple[int, ...]
) -> keras.Variable:
    """Adds the kernel or bias of one of the matrices."""
    return layer.add_weight(
        name=f"{name}_{kind}",
        shape=shape,
        initializer=_own_initializer(getattr(layer, f"{kind}_initializer"), index),
        regularizer=getattr(layer, f"{kind}_regularizer"),
        constraint=getattr(layer, f"{kind}_constraint"),
    )


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
