"""Reinforcement learning and recipes: small MLPs."""

import keras
from keras import layers, ops

from benchmarks.examples.example import Built, chain, example, images, normal


@example("rl/actor_critic_cartpole", pairs=1)
def actor_critic():
    """Two outputs."""
    inputs = keras.Input((4,))
    common = layers.Dense(32, activation="relu")(inputs)
    action = layers.Dense(2, activation="softmax")(common)
    model = keras.Model(inputs, [action, layers.Dense(1)(common)])
    return Built(model, normal(4))


@example("rl/ppo_cartpole", pairs=2)
def ppo():
    """Two hidden layers of one width."""
    inputs = keras.Input((4,))
    x = layers.Dense(32, activation=keras.activations.tanh)(inputs)
    x = layers.Dense(32, activation=keras.activations.tanh)(x)
    model = keras.Model(inputs, layers.Dense(2)(x))
    return Built(model, normal(4))


@example("rl/deep_q_network_breakout", pairs=1)
def deep_q_network():
    """One hidden layer behind convolutions."""
    model = chain(
        layers.Lambda(
            lambda x: keras.ops.transpose(x, (0, 2, 3, 1)), output_shape=(8, 8, 4)
        ),
        layers.Conv2D(4, 3, 2, activation="relu"),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dense(4, activation="linear"),
    )
    x = images(8, 4).transpose(0, 3, 1, 2)
    return Built(model, x)


@example("rl/ddpg_pendulum", pairs=3)
def ddpg():
    """A branch of the state, one of the action."""
    state, action = keras.Input((3,)), keras.Input((1,))
    x = layers.Dense(16, activation="relu")(state)
    x = layers.Dense(24, activation="relu")(x)
    y = layers.Dense(24, activation="relu")(action)
    x = layers.Dense(32, activation="relu")(layers.Concatenate()([x, y]))
    x = layers.Dense(32, activation="relu")(x)
    model = keras.Model([state, action], layers.Dense(1)(x))
    return Built(model, [normal(3), normal(1)])


class MyTrainer(keras.Model):
    """Around any model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def call(self, x):
        return self.model(x)


@example("keras_recipes/trainer_pattern", pairs=1)
def trainer_pattern():
    """Flatten, a hidden layer, Dropout, classes."""
    inner = chain(
        keras.Input((4, 4)),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dropout(0.2),
        layers.Dense(5),
    )
    parts = [(inner, normal(4, 4))]
    return Built(MyTrainer(inner), normal(4, 4), parts)


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


@example("keras_recipes/antirectifier", pairs=0)
def antirectifier():
    """Dense and Antirectifier in turn."""
    model = chain(
        keras.Input((12,)),
        layers.Dense(24),
        Antirectifier(),
        layers.Dense(24),
        Antirectifier(),
        layers.Dropout(0.5),
        layers.Dense(5),
    )
    return Built(model, normal(12))
