"""Why neurons are left out: what between two Dense layers is not on each alone."""

from typing import Any

import keras

from keras_idea.keras_private.symbolic import Call

#: Operations that act on each number alone, or on the numbers of one place together.
_ON_EACH = frozenset(
    """Abs Add Cast Celu Clip ConvertToTensor Divide Elu Erf Exp Gelu HardShrink
    HardSigmoid HardSilu HardTanh Identity LeakyRelu LogSigmoid Maximum Minimum Multiply
    Negative Power ReLU Relu Relu6 Selu Sigmoid Silu SoftShrink Softplus Softsign
    SparsePlus SparseSigmoid Sqrt Square Squareplus Subtract Tanh TanhShrink Threshold
    TrueDivide""".split()
)
#: Keras's activations of each number alone.
_ACTIVATIONS = {
    getattr(keras.activations, name, None)
    for name in """celu elu exponential gelu hard_shrink hard_sigmoid hard_silu
    hard_tanh leaky_relu linear log_sigmoid mish relu relu6 selu sigmoid silu
    soft_shrink softplus softsign sparse_plus sparse_sigmoid squareplus tanh
    tanh_shrink""".split()
}
_LAYERS_ON_EACH = {
    keras.layers.Add,
    keras.layers.Dropout,
    keras.layers.ELU,
    keras.layers.GaussianDropout,
    keras.layers.Identity,
    keras.layers.LeakyReLU,
    keras.layers.Multiply,
    keras.layers.ReLU,
}


def why_not_plain(layer: keras.layers.Layer) -> str | None:
    """Why the numbers in a layer's kernel are not those that it multiplies by."""
    if layer.lora_enabled:
        return f"'{layer.path}' has LoRA enabled"
    if layer.quantization_mode is not None:
        return f"'{layer.path}' is quantized ({layer.quantization_mode})"
    return None


def why_not_on_each(call: Call) -> str | None:
    """Why a call does not act on each neuron alone; None if it does."""
    operation = call.operation
    name = type(operation).__name__
    if isinstance(operation, keras.layers.Layer):
        shaped = getattr(operation, "noise_shape", None) is not None  # a Dropout's
        known = type(operation) in _LAYERS_ON_EACH
        if type(operation) is keras.layers.Activation:
            known = operation.activation in _ACTIVATIONS
        if not known or shaped:
            return f"{name} '{operation.name}' reads or makes it"
    elif name not in _ON_EACH:
        return f"the operation {name} reads or makes it"
    width = call.outputs[0].shape[-1:]
    if any(tuple(t.shape)[-1:] != width for t in (*call.inputs, *call.outputs)):
        return f"{name} broadcasts it"
    held = vars(operation).values() if name in _ON_EACH else ()
    if any(_has_places(a, width) for a in (*call.arguments, *held)):
        return f"{name} has a number of its own for each neuron"
    return None


def _has_places(argument: Any, width: tuple[int, ...]) -> bool:
    """Whether a constant or variable holds a number for each neuron."""
    if isinstance(argument, keras.KerasTensor):
        return False
    return width != (1,) and tuple(getattr(argument, "shape", ()))[-1:] == width
