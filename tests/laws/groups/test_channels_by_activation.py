"""`method="activation"` of channels, against NumPy in float64."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.conv_nets import drawn
from tests.support.helpers import to_numpy


def network():
    """Channels of `first` are read by three kernels: in part, in groups, flattened."""
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(8, 3, padding="same", name="first")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU(name="relu")(x)
    y = layers.Conv2D(4, 1, groups=2, activation="relu", name="grouped")(x)
    both = layers.Concatenate(name="both")([y, x])
    z = layers.SeparableConv2D(4, 3, depth_multiplier=2, name="separable")(both)
    z = layers.GlobalAveragePooling2D()(z)
    flat = layers.Flatten(name="flat")(x)
    return drawn(keras.Model(inputs, layers.Dense(3)(layers.Concatenate()([z, flat]))))


def images(model, count=6):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(3).normal(size=shape).astype("float32")


def seen(model, x, name):
    inner = keras.Model(model.inputs, model.get_layer(name).output)
    return to_numpy(inner(x)).astype("float64")


def statistic(values_BTF, aggregation):
    """What a sample adds, and how the sum over all samples becomes an importance."""
    if aggregation == "paper":
        return np.sqrt((values_BTF**2).sum(1)).mean(0)
    return (np.abs(values_BTF).mean(1) ** 2).sum(0)


@pytest.mark.parametrize("aggregation", ["paper", "minitron"])
def test_equals_numpy(aggregation):
    model = network()
    x = images(model)
    relu = seen(model, x, "relu").reshape(len(x), -1, 8)
    grouped = seen(model, x, "grouped").reshape(len(x), -1, 4)
    # Both groups of `grouped` have the same rows: channels 0 and 4 are one unit.
    tied = relu.reshape(len(x), -1, 4)
    parts = [statistic(tied, aggregation) for _ in range(3)]
    expected = {"first": sum(parts), "grouped": statistic(grouped, aggregation)}
    groups = ki.find_groups(model, ["channels"])
    names = {"first": 4, "grouped": 2}
    method = ki.methods.Activation(x, aggregation=aggregation, batch_size=4)
    found = method.importance(model, groups, None)
    found = {g.name: to_numpy(v) for g, v in zip(groups, found, strict=True)}
    assert {name: len(found[name]) for name in names} == names
    if aggregation == "minitron":
        expected = {name: np.sqrt(value) for name, value in expected.items()}
    np.testing.assert_allclose(found["first"], expected["first"], rtol=1e-5)


def test_a_padding_mask_is_refused():
    tokens, mask = keras.Input((8, 2), name="x"), keras.Input((8,), name="padding_mask")
    y = layers.Conv1D(6, 3, padding="same")(tokens)
    y = layers.Conv1D(4, 3, padding="same")(y * keras.ops.expand_dims(mask, -1))
    model = keras.Model([tokens, mask], layers.GlobalAveragePooling1D()(y))
    data = {"x": np.ones((4, 8, 2), "float32"), "padding_mask": np.ones((4, 8))}
    with pytest.raises(ValueError, match="have a padding mask, and convolutions"):
        ki.shrink(model, {"channels": 0.5}, data)
