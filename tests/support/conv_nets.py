"""Tiny convolutional networks, one for each way in which channels are used."""

import keras
import numpy as np
from keras import layers


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
            (2, 10, 10),
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
