"""Layers between two Dense layers that have weights, or statistics, of each neuron.

What they make of a pruned neuron reaches nothing: the rows of its readers are zeros.
Its weights become zeros all the same, so that nothing of it has a gradient. What is
frozen, and statistics such as moving means, stay as they are until they are cut out.
"""

import keras

from keras_idea._groups.cut import Cut

#: The weights of a neuron, which are zeros once it is pruned. All else is statistics.
_WEIGHTS: dict[type, tuple[str, ...]] = {
    keras.layers.BatchNormalization: ("gamma", "beta"),
    keras.layers.PReLU: ("alpha",),
}


def has_own_weights(layer: object) -> bool:
    """bool, whether a layer is one that has weights of each neuron."""
    return type(layer) in _WEIGHTS


def why_not_own_weights(
    layer: keras.layers.Layer, inputs: keras.KerasTensor
) -> str | None:
    """Why such a layer does not act on each neuron alone; None if it does."""
    axes = (-1, len(inputs.shape) - 1)
    if isinstance(layer, keras.layers.BatchNormalization):
        if layer.axis not in axes:
            return f"normalizes along axis {layer.axis}, not along that of the neurons"
        if not layer.epsilon:
            return "has epsilon=0, which makes NaN of a pruned neuron"
    return None


def cuts_of(layer: keras.layers.Layer) -> list[Cut]:
    """How the neurons lie in all variables of such a layer."""
    # An `alpha` that the neurons share has one number along their axis.
    shapes = [(variable, tuple(variable.shape)) for variable in layer.variables]
    width = max(shape[-1] for _, shape in shapes)
    return [
        Cut(variable, len(shape) - 1, is_bias=True)
        for variable, shape in shapes
        if shape[-1] == width > 1
    ]


def weights_of(layer: keras.layers.Layer) -> list[Cut]:
    """How the neurons lie in its weights, which are zero for a pruned neuron."""
    names = _WEIGHTS[type(layer)]
    return [cut for cut in cuts_of(layer) if cut.variable.name in names]
