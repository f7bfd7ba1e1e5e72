"""Diffusion, flows, and mixtures of densities."""

import math

import keras
import numpy as np
from keras import layers, ops

from benchmarks.examples.example import (
    BATCH,
    Built,
    Holder,
    chain,
    example,
    images,
    normal,
)


def kernel_init(scale):
    """As the diffusion models begin."""
    return keras.initializers.VarianceScaling(max(scale, 1e-10), "fan_avg", "uniform")


class TimeEmbedding(layers.Layer):
    """Sines and cosines of a step; holds a constant tensor."""

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        scale = math.log(10000) / (dim // 2 - 1)
        self.emb = ops.exp(ops.arange(dim // 2, dtype="float32") * -scale)

    def call(self, inputs):
        angles = ops.cast(inputs, "float32")[:, None] * self.emb[None, :]
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


class PixelAttention(layers.Layer):
    """Attention over a feature map, by Dense layers and einsum."""

    def __init__(self, units, groups=2, **kwargs):
        super().__init__(**kwargs)
        self.units, self.groups = units, groups
        self.norm = layers.GroupNormalization(groups=groups)
        self.query, self.key = layers.Dense(units), layers.Dense(units)
        self.value = layers.Dense(units)
        self.proj = layers.Dense(units, kernel_initializer=kernel_init(0.0))

    def call(self, inputs):
        batch, rows, columns = ops.shape(inputs)[:3]
        x = self.norm(inputs)
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = ops.einsum("bhwc,bHWc->bhwHW", q, k) * self.units**-0.5
        scores = ops.reshape(scores, (batch, rows, columns, rows * columns))
        weights = ops.softmax(scores, -1)
        weights = ops.reshape(weights, (batch, rows, columns, rows, columns))
        return inputs + self.proj(ops.einsum("bhwHW,bHWc->bhwc", weights, v))


def residual(x, time, width):
    """Convolutions of an image, to which a Dense layer of the step is added."""
    activation = keras.activations.swish
    time = layers.Dense(width, kernel_initializer=kernel_init(1.0))(activation(time))
    y = activation(layers.GroupNormalization(groups=2)(x))
    y = layers.Conv2D(width, 3, padding="same")(y)
    y = layers.Add()([y, time[:, None, None, :]])
    y = layers.Conv2D(width, 3, padding="same")(
        activation(layers.GroupNormalization(groups=2)(y))
    )
    shortcut = x if x.shape[3] == width else layers.Conv2D(width, 1)(x)
    return layers.Add()([y, shortcut])


def diffusion_network():
    """A small U-Net of two inputs."""
    image, step = keras.Input((8, 8, 3)), keras.Input((), dtype="int32")
    x = layers.Conv2D(8, 3, padding="same")(image)
    time = TimeEmbedding(16)(step)
    time = layers.Dense(32, activation="swish", kernel_initializer=kernel_init(1.0))(
        time
    )
    time = layers.Dense(32, kernel_initializer=kernel_init(1.0))(time)
    skip = x = PixelAttention(8)(residual(x, time, 8))
    x = residual(layers.Conv2D(12, 3, 2, "same")(x), time, 12)
    x = layers.Concatenate(axis=-1)([layers.UpSampling2D(2)(x), skip])
    x = layers.GroupNormalization(groups=2)(residual(x, time, 8))
    outputs = layers.Conv2D(3, 3, padding="same")(keras.activations.swish(x))
    return keras.Model([image, step], outputs, name="unet")


@example("generative/ddpm", pairs=2)
def ddpm():
    """An MLP of the step, read by a Dense layer in each residual block."""
    network, ema_network = diffusion_network(), diffusion_network()
    ema_network.set_weights(network.get_weights())
    steps = np.arange(BATCH).astype("int32")
    ema_network.trainable = False
    model = Holder(network=network, ema_network=ema_network)
    return Built(model, images(), [(network, [images(), steps])])


def coupling():
    """Two towers of regularized Dense layers, without names that are one's own."""
    inputs = keras.Input((2,))

    def tower(last):
        x = inputs
        for _ in range(4):
            x = layers.Dense(
                24, activation="relu", kernel_regularizer=keras.regularizers.l2(0.01)
            )(x)
        return layers.Dense(
            2, activation=last, kernel_regularizer=keras.regularizers.l2(0.01)
        )(x)

    return keras.Model(inputs, [tower("linear"), tower("tanh")])


class RealNVP(keras.Model):
    """Functional models in a list, constant masks, and a call."""

    def __init__(self, num_coupling_layers):
        super().__init__()
        self.num_coupling_layers = num_coupling_layers
        pattern = [[0, 1], [1, 0]] * (num_coupling_layers // 2)
        self.masks = ops.convert_to_tensor(pattern, dtype="float32")
        self.layers_list = [coupling() for _ in range(num_coupling_layers)]

    def call(self, x, training=True):
        log_det = 0
        direction = -1 if training else 1
        for i in range(self.num_coupling_layers)[::direction]:
            masked, reversed_mask = x * self.masks[i], 1 - self.masks[i]
            t, s = self.layers_list[i](masked)
            t, s = t * reversed_mask, s * reversed_mask
            gate = (direction - 1) / 2
            x = reversed_mask * (
                x * ops.exp(direction * s) + direction * t * ops.exp(gate * s)
            )
            x = x + masked
            log_det += gate * ops.sum(s, axis=1)
        return x, log_det


@example("generative/real_nvp", pairs=16)
def real_nvp():
    """Two coupling layers, each of two towers with four hidden layers."""
    return Built(RealNVP(2), normal(2))


class MixtureDensity(layers.Layer):
    """Three Dense layers side by side, concatenated; a get_config."""

    def __init__(self, out_dims, num_components, **kwargs):
        super().__init__(**kwargs)
        self.out_dims, self.num_components = out_dims, num_components
        self.mus = layers.Dense(out_dims * num_components)
        self.sigmas = layers.Dense(out_dims * num_components)
        self.pis = layers.Dense(num_components)

    def call(self, x):
        sigmas = ops.elu(self.sigmas(x)) + 1 + 1e-6
        return ops.concatenate([self.mus(x), sigmas, self.pis(x)], axis=-1)

    def get_config(self):
        mine = {"out_dims": self.out_dims, "num_components": self.num_components}
        return {**super().get_config(), **mine}


@example("keras_recipes/approximating_non_function_mappings", pairs=2)
def mixture_density():
    """Two hidden layers."""
    model = chain(
        keras.Input((1,)),
        layers.Dense(24, activation="relu"),
        layers.Dense(24, activation="relu"),
        MixtureDensity(1, 3),
    )
    return Built(model, normal(1))
