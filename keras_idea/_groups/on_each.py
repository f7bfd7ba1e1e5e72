"""What lies between two Dense layers must act on each neuron alone: whether it does.

Some operations and layers are known to, and to make zeros of zeros; of all others the
numbers tell (`by_numbers`). What is refused has a reason in words.
"""

from collections.abc import Iterable
from typing import Any

import keras

from keras_idea._groups.between import has_own_weights, why_not_own_weights
from keras_idea._keras.layers import sublayers, takes_training
from keras_idea._keras.symbolic import Call
from keras_idea.functional.by_numbers import PrunedNumbers, why_not_each_number

#: Operations on each number alone, or on the numbers of one place together, that make
#: zeros of zeros.
_ZERO_OF_ZEROS = frozenset(
    """Absolute Cast Celu ConvertToTensor Elu Erf Gelu HardShrink HardSilu HardTanh
    LeakyRelu Multiply Negative Relu Relu6 Selu Silu SoftShrink Softsign Square Tanh
    TanhShrink""".split()
)
#: Likewise, if each number comes from a neuron.
_ZERO_OF_TENSORS = frozenset("Add Maximum Minimum Subtract".split())
#: Keras's activations that act on each number alone, and give 0 for 0.
_ACTIVATIONS = {
    getattr(keras.activations, name, None)
    for name in """celu elu gelu hard_shrink hard_silu hard_tanh leaky_relu linear mish
    relu relu6 selu silu soft_shrink softsign tanh tanh_shrink""".split()
}
_LAYERS = {
    keras.layers.Add,
    keras.layers.Average,
    keras.layers.Dropout,
    keras.layers.ELU,
    keras.layers.GaussianDropout,
    keras.layers.Identity,
    keras.layers.LeakyReLU,
    keras.layers.Maximum,
    keras.layers.Minimum,
    keras.layers.Multiply,
    keras.layers.ReLU,
    keras.layers.SpatialDropout1D,
    keras.layers.SpatialDropout2D,
    keras.layers.SpatialDropout3D,
    keras.layers.Subtract,
}
#: Layers that make random numbers of zeros.
_NOISE = {keras.layers.AlphaDropout, keras.layers.GaussianNoise}
#: Regularizers to which each neuron counts alone, and one of zeros not at all.
_SUMS = (keras.regularizers.L1, keras.regularizers.L2, keras.regularizers.L1L2)
#: Layers that look at all numbers of a place for one that numbers would not meet.
_ACROSS = {keras.layers.Masking}


def is_known(call: Call) -> bool:
    """bool, whether a call is known to act on each number alone."""
    if isinstance(call.operation, keras.layers.Layer):
        return type(call.operation) in _LAYERS | _NOISE
    name = type(call.operation).__name__
    tensors = all(isinstance(a, keras.KerasTensor) for a in call.arguments)
    return name in _ZERO_OF_ZEROS or (name in _ZERO_OF_TENSORS and tensors)


def reads_or_makes(call: Call) -> str:
    """The reason of neurons that come to, or from, what is on no neuron alone."""
    return f"{_described(call)} reads or makes it"


class OnEach:
    """Follows neurons, and those that are pruned, through calls in their order."""

    def __init__(self) -> None:
        self._numbers = PrunedNumbers()

    def is_zero(self, tensors: Iterable[keras.KerasTensor]) -> bool:
        """bool, whether a pruned neuron is 0 in all of some tensors."""
        return self._numbers.are_zero(tensors)

    def why_not(self, call: Call) -> str | None:
        """Why a call does not act on each neuron alone; None if it does."""
        layer: Any = call.operation
        if not call.outputs:  # it returns None
            return reads_or_makes(call)
        width = call.outputs[0].shape[-1:]
        if any(tuple(t.shape)[-1:] != width for t in (*call.inputs, *call.outputs)):
            name = type(layer).__name__
            return f"{name} broadcasts it" if is_known(call) else reads_or_makes(call)
        if type(layer) is keras.layers.Activation:
            return self._why_not_function(
                f"{name_of(layer.activation)} of Activation '{layer.name}'",
                layer.activation,
                call.outputs[0],
            )
        if has_own_weights(layer):
            return self._why_not_own_weights(call)
        if isinstance(layer, keras.layers.Layer):
            return self._why_not_layer(call)
        held = [*call.arguments, *keras.tree.flatten(list(vars(layer).values()))]
        if any(_has_places(a, width) for a in held):
            return f"{type(layer).__name__} has a number of its own for each neuron"
        if is_known(call) and self.is_zero(call.inputs):
            return None
        return self._by_numbers(call)

    def why_not_activation(
        self, activation: Any, output: keras.KerasTensor
    ) -> str | None:
        """Why the activation of a Dense layer with an output does not."""
        what = f"its activation {name_of(activation)}"
        return self._why_not_function(what, activation, output)

    def _why_not_function(
        self, what: str, function: Any, output: keras.KerasTensor
    ) -> str | None:
        before = keras.KerasTensor(output.shape, "float32")
        if isinstance(function, keras.layers.Layer):
            if function.variables or has_own_weights(function):
                return f"{what} has weights or seeds of its own"
            return self.why_not(Call(function, ((before,), {}), [output]))
        if any(function is known for known in _ACTIVATIONS):
            return None
        why_not = why_not_each_number(function, output.shape)
        why_not = why_not or self._numbers.make(function, [before], [output])
        return why_not and f"{what} {why_not}"

    def _why_not_own_weights(self, call: Call) -> str | None:
        layer: Any = call.operation
        why_not = why_not_own_weights(layer, call.inputs[0])
        if why_not is not None:
            return f"{_described(call)} {why_not}"
        if not (getattr(layer, "scale", True) and self.is_zero(call.inputs)):
            self._numbers.draw(call.outputs[0])
        return None

    def _why_not_layer(self, call: Call) -> str | None:
        layer: Any = call.operation
        regularizer = layer.activity_regularizer
        if regularizer is not None and not isinstance(regularizer, _SUMS):
            return f"an activity regularizer of {_described(call)} reads it"
        if is_known(call):
            shaped = getattr(layer, "noise_shape", None) is not None  # a Dropout's
            if shaped or getattr(layer, "data_format", "") == "channels_first":
                return reads_or_makes(call)
            if type(layer) in _NOISE or not self.is_zero(call.inputs):
                self._numbers.draw(call.outputs[0])
            return None
        theirs = type(layer).__module__.startswith("keras.")
        # A number that is made of the width in `build` would be another if it were
        # built again.
        built = not theirs and type(layer).build is not keras.layers.Layer.build
        if layer.variables or sublayers(layer) or built or type(layer) in _ACROSS:
            return reads_or_makes(call)
        modes = (False, True) if takes_training(layer) else (None,)
        reasons = [self._by_numbers(call, training) for training in modes]
        return next(filter(None, reasons), None)

    def _by_numbers(self, call: Call, training: bool | None = None) -> str | None:
        function = call.function(training)
        why_not = self._numbers.make(function, call.inputs, call.outputs)
        return why_not and f"{_described(call)} {why_not}"


def name_of(function: Any) -> str:
    """The name of a function, of a partial one that of what it calls."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def _described(call: Call) -> str:
    name = type(call.operation).__name__
    if isinstance(call.operation, keras.layers.Layer):
        return f"{name} '{call.operation.name}'"
    return f"the operation {name}"


def _has_places(argument: Any, width: tuple[int, ...]) -> bool:
    """Whether a constant or variable holds a number for each neuron."""
    if isinstance(argument, keras.KerasTensor):
        return False
    return width != (1,) and tuple(getattr(argument, "shape", ()))[-1:] == width
