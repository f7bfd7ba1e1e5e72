"""`method="activation"` of channels, against NumPy in float64."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.conv_nets import MODELS, drawn
from tests.support.conv_nets_trained import OFF_THE_STOCK_PATH
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


ROWS = {**MODELS, **OFF_THE_STOCK_PATH}
LEFT_OUT = {"called twice", "twins"}


@pytest.mark.parametrize("name", [name for name in ROWS if name not in LEFT_OUT])
def test_shrink_keeps_the_largest(name):
    """In every network: the narrow model keeps what is largest where it is read."""
    model = drawn(ROWS[name][0]())
    groups = ki.find_groups(model, ["channels"])
    x = images(model)
    found = ki.methods.Activation(x).importance(model, groups, None)
    narrow = ki.shrink(model, {"channels": 0.5}, x)
    for group, values in zip(groups, found, strict=True):
        assert to_numpy(values).shape == (group.hidden_dim,)
    first = groups[0].weights.held_cuts()[0]
    stay = np.argsort(to_numpy(found[0]))[-ROWS[name][1][0] :]
    value = to_numpy(first.take(np.sort(stay)))
    ours = {v.path: v for v in narrow.variables}[first.variable.path]
    if value.shape == tuple(ours.shape):  # its other axis is not narrowed
        np.testing.assert_array_equal(to_numpy(ours), value)
    widths = [g.hidden_dim for g in ki.find_groups(narrow, ["channels"])]
    assert [n for n in widths if n > 1] == [n for n in ROWS[name][1] if n > 1]


def test_in_fit():
    """At `begin_step` the channels of the smallest activations go, all at once."""
    model = network()
    model.compile("sgd", "mse")
    x, y = images(model, 16), np.zeros((16, 3), "float32")
    groups = ki.find_groups(model, ["channels"])
    found = ki.methods.Activation(x).importance(model, groups, None)
    stay = np.sort(np.argsort(to_numpy(found[0]))[-2:])
    kernel = to_numpy(model.get_layer("first").kernel)[..., [*stay, *(stay + 4)]]
    model.optimizer.learning_rate = 0.0
    method = ki.methods.Activation(x)
    prune = ki.IdeaPruneCallback(
        targets={"channels": 0.5}, begin_step=1, prune_steps=2, method=method
    )
    model.fit(x, y, 4, 1, 0, [prune], shuffle=False)
    np.testing.assert_array_equal(to_numpy(model.get_layer("first").kernel), kernel)


def test_what_is_refused():
    model = network()
    model.compile("sgd", "mse")
    x, y = images(model, 16), np.zeros((16, 3), "float32")

    def fit(method):
        prune = ki.IdeaPruneCallback(
            targets={"channels": 0.5}, begin_step=1, prune_steps=2, method=method
        )
        model.fit(x, y, 4, 1, 0, [prune])

    with pytest.raises(ValueError, match="channels.*'activation' with data"):
        fit("activation")
    with pytest.raises(ValueError, match="does not support channels"):
        fit("learned_mask")
    with pytest.raises(ValueError, match="'grouped', which reads .* in groups"):
        fit(ki.methods.Activation(x, refit=True))
    twice = drawn(OFF_THE_STOCK_PATH["called twice"][0]())
    with pytest.raises(ValueError, match="called more than once"):
        ki.shrink(twice, {"channels": 0.5}, images(twice))


def test_a_padding_mask_is_refused():
    tokens, mask = keras.Input((8, 2), name="x"), keras.Input((8,), name="padding_mask")
    y = layers.Conv1D(6, 3, padding="same")(tokens)
    y = layers.Conv1D(4, 3, padding="same")(y * keras.ops.expand_dims(mask, -1))
    model = keras.Model([tokens, mask], layers.GlobalAveragePooling1D()(y))
    data = {"x": np.ones((4, 8, 2), "float32"), "padding_mask": np.ones((4, 8))}
    with pytest.raises(ValueError, match="have a padding mask, and convolutions"):
        ki.shrink(model, {"channels": 0.5}, data)
