"""Which channels are found, and that a model without them computes the same."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.helpers import to_numpy


def after(x, *rest):
    for layer in rest:
        x = layer(x)
    return x


def of(shape, *rest):
    inputs = keras.Input(shape)
    return keras.Model(inputs, after(inputs, *rest))


def normal(**arguments):
    return layers.BatchNormalization(**arguments)


def residual():
    inputs = keras.Input((6, 6, 2))
    x = after(inputs, layers.Conv2D(6, 3, padding="same"), normal(), layers.ReLU())
    y = after(x, layers.Conv2D(6, 3, padding="same", use_bias=False), normal())
    x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, after(x, layers.Flatten(), layers.Dense(3)))


def dense_net():
    inputs = x = keras.Input((5, 5, 2))
    for _ in range(3):
        y = after(x, layers.Conv2D(4, 3, padding="same"), normal(), layers.ReLU())
        x = layers.Concatenate()([x, y])
    x = after(x, layers.Conv2D(6, 1), layers.GlobalAveragePooling2D())
    return keras.Model(inputs, layers.Dense(3)(x))


def excited():
    inputs = keras.Input((5, 5, 2))
    x = layers.Conv2D(8, 3)(inputs)
    y = layers.GlobalAveragePooling2D(keepdims=True)(x)
    y = layers.Conv2D(4, 1, activation="relu")(y)
    y = layers.Conv2D(8, 1, activation="sigmoid")(y)
    x = layers.Multiply()([x, y])
    return keras.Model(inputs, layers.Conv2D(2, 1)(x))


def excited_by_dense():
    inputs = keras.Input((5, 5, 2))
    x = layers.Conv2D(8, 3)(inputs)
    y = layers.Dense(4, "relu")(layers.GlobalAveragePooling2D()(x))
    y = layers.Reshape((1, 1, 8))(layers.Dense(8, "sigmoid")(y))
    return keras.Model(inputs, layers.Conv2D(2, 1)(x * y))


def u_net():
    inputs = keras.Input((8, 8, 2))
    x = layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
    y = layers.Conv2D(6, 3, padding="same")(layers.MaxPooling2D()(x))
    y = layers.UpSampling2D(interpolation="bilinear")(y)
    y = layers.Conv2DTranspose(4, 3, padding="same")(y)
    x = layers.Concatenate()([x, layers.Cropping2D(0)(y)])
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))


def branches():
    """A Sequential, and a functional model, that channels enter."""
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(8, 3, activation="relu")(inputs)
    one = keras.Sequential([layers.Conv2D(8, 3, padding="same"), normal()])
    inner = keras.Input((4, 4, 8))
    other = keras.Model(inner, after(inner, layers.DepthwiseConv2D(1), layers.ReLU()))
    x = layers.Add()([one(x), other(x), x])
    return keras.Model(inputs, layers.Dense(2)(layers.GlobalMaxPooling2D()(x)))


def transfer():
    backbone = of(
        (6, 6, 2), layers.Conv2D(6, 3), normal(), layers.ReLU(), layers.Conv2D(8, 3)
    )
    inputs = keras.Input((6, 6, 2))
    x = after(inputs, layers.Rescaling(0.5), backbone, layers.GlobalAveragePooling2D())
    return keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.5)(x)))


#: name -> (model, channels of each group once half of them went, parameters then).
MODELS = {
    "1d": (
        lambda: of((9, 2), layers.Conv1D(6, 3), normal(), layers.Conv1D(2, 3)),
        [3],
    ),
    "3d": (
        lambda: of(
            (4, 4, 4, 1), layers.Conv3D(4, 2), layers.Flatten(), layers.Dense(2)
        ),
        [2],
    ),
    "transposed": (
        lambda: of(
            (4, 2),
            layers.Conv1DTranspose(6, 3, strides=2),
            layers.PReLU(shared_axes=[1]),
            layers.Conv1DTranspose(2, 2),
        ),
        [3],
    ),
    "depthwise": (
        lambda: of(
            (5, 5, 2),
            layers.Conv2D(4, 3),
            layers.DepthwiseConv2D(3, depth_multiplier=2),
            layers.PReLU(),
            layers.Conv2D(2, 1),
        ),
        [2],
    ),
    "separable": (
        lambda: of(
            (6, 6, 2),
            layers.SeparableConv2D(6, 3),
            normal(),
            layers.SeparableConv2D(4, 3, depth_multiplier=2),
            layers.Conv2D(2, 1),
        ),
        [3, 2],
    ),
    "grouped": (
        lambda: of(
            (5, 5, 2),
            layers.Conv2D(8, 3),
            layers.Conv2D(6, 3, groups=2),
            layers.Conv2D(2, 1),
        ),
        [2, 2],
    ),
    "each alone": (
        lambda: of(
            (5, 5, 2),
            layers.Conv2D(4, 3),
            layers.Conv2D(8, 3, groups=4, activation="hard_sigmoid"),
            layers.Conv2D(2, 1),
        ),
        [2],
    ),
    "whole groups": (
        lambda: of(
            (5, 5, 2),
            layers.Conv2D(12, 3),
            layers.GroupNormalization(4),
            layers.SpatialDropout2D(0.5),
            layers.Conv2D(2, 1),
        ),
        [2],
    ),
    "reshaped": (
        lambda: of(
            (4, 4, 2),
            layers.Conv2D(6, 3, activation="gelu"),
            layers.ZeroPadding2D(1),
            layers.Reshape((16, 6)),
            layers.Permute((2, 1)),
            layers.Permute((2, 1)),
            layers.Conv1D(2, 3),
        ),
        [3],
    ),
    "a generator": (
        lambda: of(
            (3,),
            layers.Dense(8 * 4),
            layers.Reshape((2, 2, 8)),
            normal(),
            layers.Conv2DTranspose(6, 2),
            layers.Resizing(5, 5),
            layers.Conv2D(1, 1),
        ),
        [4, 3],
    ),
    "channels first": (
        lambda: of(
            (2, 6, 6),
            layers.Conv2D(6, 3, data_format="channels_first"),
            normal(axis=1),
            layers.MaxPooling2D(data_format="channels_first"),
            layers.Flatten(data_format="channels_first"),
            layers.Dense(2),
        ),
        [3],
    ),
    "residual": (residual, [3]),
    "dense net": (dense_net, [2, 2, 2, 3]),
    "excited": (excited, [4, 2]),
    "excited by dense": (excited_by_dense, [4]),
    "u-net": (u_net, [2, 3, 2]),
    "branches": (branches, [4]),
    "transfer": (transfer, [3, 4]),
}


def drawn(model):
    """With weights, and statistics, that are not zeros."""
    rng = np.random.default_rng(0)
    for variable in model.weights:
        values = rng.normal(size=variable.shape, scale=0.5)
        variable.assign(values**2 + 0.3 if "variance" in variable.name else values)
    return model


def masked(model, kinds=("channels",)):
    """Zeroes, by hand, every other unit where it is read alone."""
    for group in ki.find_groups(model, kinds):
        for cut in group.weights.own_cuts():
            values = to_numpy(cut.variable)
            places = to_numpy(cut.spread(np.arange(group.hidden_dim) % 2 == 1))
            cut.variable.assign(np.where(places, 0, values))
    return model


@pytest.mark.parametrize("name", MODELS)
def test_narrow_equals_masked(name, tmp_path):
    make, stay = MODELS[name]
    keras.utils.set_random_seed(0)
    model = masked(drawn(make()))
    found = ki.find_groups(model, ["channels"])
    assert [group.width for group in found] == stay
    x = np.random.default_rng(1).normal(size=(3, *model.input_shape[1:]))
    x = x.astype("float32")
    expected = to_numpy(model(x))
    narrow = ki.compact(model)
    assert [g.hidden_dim for g in ki.find_groups(narrow, ["channels"])] == [
        n for n in stay if n > 1
    ]
    assert narrow.count_params() < model.count_params()
    size = np.abs(expected).max()
    np.testing.assert_allclose(to_numpy(narrow(x)) / size, expected / size, atol=1e-6)
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(narrow(x)))
    shapes = [tuple(tensor.shape) for tensor in narrow.outputs]
    assert shapes == [tuple(tensor.shape) for tensor in model.outputs]


class Normed(layers.Layer):
    """Divides by the number of channels."""

    def call(self, x):
        return x / x.shape[-1]


class Halves(layers.Layer):
    def call(self, x):
        one, other = keras.ops.split(x, 2, axis=-1)
        return one * other


class Numbered(layers.Layer):
    def call(self, x):
        return layers.Reshape((9, 4))(x)


CONV = {"kernel_size": 3, "name": "conv"}
LEFT_OUT = {
    "an output": (lambda: [layers.Activation("relu")], "output of the model"),
    "mixed": (
        lambda: [layers.LayerNormalization(name="n"), layers.Conv2D(2, 1)],
        "LayerNormalization 'n' mixes",
    ),
    "softmax": (
        lambda: [layers.Activation("softmax"), layers.Conv2D(2, 1)],
        "softmax",
    ),
    "split": (lambda: [Halves(), layers.Conv2D(2, 1)], "Split"),
    "in a Reshape made in a call": (
        lambda: [Numbered(), layers.Conv1D(2, 1)],
        "code holds its number",
    ),
    "regularized": (
        lambda: [layers.ActivityRegularization(1.0, name="r"), layers.Conv2D(2, 1)],
        "an activity regularizer of 'r'",
    ),
    "NaN": (
        lambda: [normal(epsilon=0.0, name="n"), layers.Conv2D(2, 1)],
        "epsilon=0",
    ),
    "called elsewhere": (
        lambda: [layers.UnitNormalization(name="u"), layers.Conv2D(2, 1)],
        "UnitNormalization 'u' mixes",
    ),
    "not read": (lambda: [layers.GlobalAveragePooling2D(name="g")], "output of the"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_left_out(name):
    make, reason = LEFT_OUT[name]
    model = of((5, 5, 2), layers.Conv2D(4, **CONV), *make())
    assert not ki.find_groups(model, ["channels"])
    assert reason in ki.explain(model).left_out["conv"]
    with pytest.raises(ValueError, match="no 'channels' that can be cut"):
        ki.shrink(model, {"channels": 0.5}, method="magnitude")


def test_explained():
    model = drawn(residual())
    explanation = ki.explain(model)
    assert list(explanation.groups["channels"].values()) == [6]
    assert "6 channels" in str(explanation) and "reads the channels of" in str(
        explanation
    )


def test_code_that_computes_with_their_number_is_refused():
    model = of((5, 5, 2), layers.Conv2D(4, **CONV), Normed(), layers.Conv2D(2, 1))
    with pytest.raises(ValueError, match="channels of conv cannot be pruned"):
        ki.shrink(model, {"channels": 0.5}, method="magnitude")


def test_shrink_ranks_by_what_reads_them():
    model = drawn(u_net())
    names = [layer.name for layer in model.layers if hasattr(layer, "kernel")]
    first, second, third, last = (to_numpy(model.get_layer(n).kernel) for n in names)
    narrow = ki.shrink(model, {"channels": 0.5}, method="magnitude")
    of_first = np.square(second).sum((0, 1, 3)) + np.square(last).sum((0, 1, 3))[:4]
    stay = np.sort(np.argsort(of_first)[-2:])
    kernel = to_numpy(narrow.get_layer(names[0]).kernel)
    np.testing.assert_array_equal(kernel, first[..., stay])


def test_what_shrink_refuses():
    model, x = drawn(u_net()), np.zeros((2, 8, 8, 2), "float32")
    with pytest.raises(ValueError, match="does not support channels"):
        ki.shrink(model, {"channels": 0.5}, x)
    with pytest.raises(ValueError, match="not channels, which convolutions read"):
        ki.shrink(model, {"channels": 0.5}, x, method="magnitude", refit=True)
