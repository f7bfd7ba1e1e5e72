"""Reinforcement learning and recipes: small MLPs, trained here by `fit`."""

import keras
from keras import layers, ops

from benchmarks.examples.example import (
    BATCH,
    SPARSE,
    Built,
    Part,
    compiled,
    example,
    images,
    integers,
    normal,
    of_logits,
)
from benchmarks.examples.steps import own_step

LOOP = "; its loop of its own is `fit` here"


@example(
    "rl/actor_critic_cartpole",
    "functional: one hidden layer, read by actor and critic" + LOOP,
    pairs=1,
    others="actions and values",
)
def actor_critic():
    """Two outputs."""
    inputs = keras.Input((4,))
    common = layers.Dense(32, activation="relu")(inputs)
    action = layers.Dense(2, activation="softmax")(common)
    model = keras.Model(inputs, [action, layers.Dense(1)(common)])
    return Built(compiled(model, [SPARSE, "mse"]), normal(4), [integers(2), normal(1)])


@example(
    "rl/ppo_cartpole",
    "functional: an MLP with tanh as a function (the actor)" + LOOP,
    pairs=2,
    others="the last gives the logits",
)
def ppo():
    """Two hidden layers of one width."""
    inputs = keras.Input((4,))
    x = layers.Dense(32, activation=keras.activations.tanh)(inputs)
    x = layers.Dense(32, activation=keras.activations.tanh)(x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    return Built(compiled(model, of_logits()), normal(4), integers(2))


@example(
    "rl/deep_q_network_breakout",
    "Sequential with a Lambda layer, convolutions and Flatten" + LOOP,
    pairs=1,
    others="the last gives the values",
)
def deep_q_network():
    """One hidden layer behind convolutions."""
    model = keras.Sequential(
        [
            layers.Lambda(
                lambda x: keras.ops.transpose(x, (0, 2, 3, 1)), output_shape=(8, 8, 4)
            ),
            layers.Conv2D(4, 3, 2, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dense(4, activation="linear"),
        ]
    )
    x = images(8, 4).transpose(0, 3, 1, 2)
    return Built(compiled(model, "mse"), x, normal(4))


@example(
    "rl/ddpg_pendulum",
    "functional, two inputs: Dense branches, Concatenate, Dense (the critic)" + LOOP,
    pairs=3,
    others="the last of each branch is concatenated; the last of all gives the value",
)
def ddpg():
    """A branch of the state, one of the action."""
    state, action = keras.Input((3,)), keras.Input((1,))
    x = layers.Dense(16, activation="relu")(state)
    x = layers.Dense(24, activation="relu")(x)
    y = layers.Dense(24, activation="relu")(action)
    x = layers.Dense(32, activation="relu")(layers.Concatenate()([x, y]))
    x = layers.Dense(32, activation="relu")(x)
    model = keras.Model([state, action], layers.Dense(1)(x))
    return Built(compiled(model, "mse"), [normal(3), normal(1)], normal(1))


class MyTrainer(keras.Model):
    """A train step around any model."""

    train_step = own_step

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.loss_fn = of_logits()

    def objective(self, data):
        x, y = data
        return self.loss_fn(y, self.model(x, training=True))

    def call(self, x):
        return self.model(x)


@example(
    "keras_recipes/trainer_pattern",
    "subclassed Model with train_step and call, around a Sequential, which is saved",
    pairs=1,
    others="the last gives the outputs",
)
def trainer_pattern():
    """Flatten, a hidden layer, Dropout, classes."""
    inner = keras.Sequential(
        [
            keras.Input((4, 4)),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(5),
        ]
    )
    parts = {"inner": Part(inner, (normal(4, 4)[:BATCH],))}
    return Built(compiled(MyTrainer(inner)), normal(4, 4), integers(5), parts)


class Antirectifier(layers.Layer):
    """Centers, normalizes, and puts both signs side by side; a kernel of its own."""

    def __init__(self, initializer="he_normal", **kwargs):
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, shape):
        width = shape[-1]
        self.kernel = self.add_weight(
            shape=(2 * width, width), initializer=self.initializer, name="kernel"
        )

    def call(self, inputs):
        x = inputs - ops.mean(inputs, axis=-1, keepdims=True)
        both = ops.concatenate([ops.relu(x), ops.relu(-x)], axis=-1)
        return ops.matmul(both, self.kernel)

    def get_config(self):
        found = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "initializer": found}


@example(
    "keras_recipes/antirectifier",
    "Sequential with a layer of its own, with get_config, between Dense layers",
    pairs=0,
    others="a layer of its own mixes the neurons: a mean, a kernel",
)
def antirectifier():
    """Dense and Antirectifier in turn."""
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Dense(24),
            Antirectifier(),
            layers.Dense(24),
            Antirectifier(),
            layers.Dropout(0.5),
            layers.Dense(5),
        ]
    )
    return Built(compiled(model, of_logits()), normal(12), integers(5))
