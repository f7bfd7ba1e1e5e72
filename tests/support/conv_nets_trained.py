"""Tiny convolutional networks off the stock path: what is frozen, shared or random."""

import keras
from keras import layers

from tests.support.conv_nets import after, normal, of, residual

FIRST = {"data_format": "channels_first"}


def frozen_normalization():
    model = residual()
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.trainable = False
    return model


def head_on(training, trainable=True):
    """Transfer learning: a head of two convolutions on a nested backbone."""
    stem = [layers.Conv2D(6, 3, name="stem"), normal(), layers.ReLU()]
    last = layers.Conv2D(8, 3, activation="relu", name="last")
    backbone = of((7, 7, 2), *stem, last)
    backbone.trainable = trainable
    inputs = keras.Input((7, 7, 2))
    x = backbone(inputs, training=training)
    x = after(x, layers.Conv2D(6, 3, name="head"), normal(), layers.ReLU())
    x = after(x, layers.Conv2D(4, 1, name="top"), layers.GlobalAveragePooling2D())
    return keras.Model(inputs, layers.Dense(3)(x))


def called_twice():
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(6, 3, padding="same")(inputs)
    conv, norm = layers.Conv2D(6, 3, padding="same"), normal()
    x = layers.ReLU()(norm(conv(x)))
    x = layers.ReLU()(norm(conv(x)))
    return keras.Model(inputs, after(x, layers.Flatten(), layers.Dense(2)))


def twins():
    """A branch called on two inputs."""
    left, right = keras.Input((6, 6, 2)), keras.Input((6, 6, 2))
    parts = [layers.Conv2D(6, 3), normal(), layers.ReLU(), layers.Conv2D(4, 3)]
    branch = keras.Sequential([*parts, layers.GlobalAveragePooling2D()])
    x = layers.Subtract()([branch(left), branch(right)])
    return keras.Model([left, right], layers.Dense(1)(x))


def two_poolings():
    inputs = keras.Input((6, 6, 2))
    x = layers.Conv2D(6, 3, strides=2, padding="same")(inputs)
    pooled = [layers.GlobalMaxPooling2D()(x), layers.GlobalAveragePooling2D()(x)]
    return keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(pooled)))


def limited():
    constraint = keras.constraints.MaxNorm(0.5, (0, 1, 2))
    wide = layers.Conv2D(6, 3, kernel_constraint=constraint, kernel_regularizer="l2")
    reader = layers.Conv2D(2, 1, kernel_constraint="unit_norm")
    return of((6, 6, 2), wide, normal(beta_regularizer="l2"), reader)


def in_one_dimension():
    return of(
        (12, 2),
        layers.SeparableConv1D(6, 3),
        layers.DepthwiseConv1D(3, depth_multiplier=2),
        layers.UpSampling1D(),
        layers.Cropping1D(1),
        layers.ZeroPadding1D(1),
        layers.Conv1D(4, 3, padding="causal"),
        layers.GlobalMaxPooling1D(),
        layers.Dense(2),
    )


def in_three_dimensions():
    return of(
        (6, 6, 6, 1),
        layers.Conv3D(4, 2),
        normal(),
        layers.UpSampling3D(),
        layers.Cropping3D(1),
        layers.ZeroPadding3D(1),
        layers.MaxPooling3D(),
        layers.Conv3DTranspose(4, 2),
        layers.AveragePooling3D(2),
        layers.GlobalAveragePooling3D(),
        layers.Dense(2),
    )


def channels_first():
    return of(
        (2, 12, 12),
        layers.Conv2D(6, 3, **FIRST),
        normal(axis=1),
        layers.PReLU(shared_axes=[2, 3]),
        layers.UpSampling2D(**FIRST),
        layers.Conv2DTranspose(4, 2, **FIRST),
        layers.DepthwiseConv2D(3, **FIRST),
        layers.GroupNormalization(2, axis=1),
        layers.SeparableConv2D(6, 2, **FIRST),
        layers.GlobalAveragePooling2D(keepdims=True, **FIRST),
        layers.Permute((2, 3, 1)),
        layers.Conv2D(2, 1),
    )


def dropped():
    return of(
        (6, 6, 2),
        layers.Conv2D(6, 3),
        layers.SpatialDropout2D(0.5),
        layers.Dropout(0.3),
        layers.GaussianNoise(0.1),
        layers.Conv2D(2, 1),
    )


#: name -> (model, channels of each group once half of them went).
OFF_THE_STOCK_PATH = {
    "frozen normalization": (frozen_normalization, [3]),
    "backbone": (lambda: head_on(None), [3, 4, 3, 2]),
    "backbone in inference mode": (lambda: head_on(False), [3, 4, 3, 2]),
    "called twice": (called_twice, [3]),
    "twins": (twins, [3, 2]),
    "two poolings": (two_poolings, [3]),
    "limited": (limited, [3]),
    "one dimension": (in_one_dimension, [3, 2]),
    "three dimensions": (in_three_dimensions, [2, 2]),
    "all channels first": (channels_first, [3, 1, 3]),
    "dropped": (dropped, [3]),
}
