"""Ways to call an FFN and to train a model, from the side."""

import keras
import numpy as np

BACKEND = keras.backend.backend()


FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def once(ffn, x):
    return x + ffn(x)


def twice(ffn, x):
    return ffn(x + ffn(x))


def over_time(ffn, x):
    return x + keras.layers.TimeDistributed(ffn)(x)


class Dropped(keras.layers.Layer):
    """An FFN that every other step leaves out, by `ops.cond`."""

    def __init__(self, ffn):
        super().__init__()
        self.ffn = ffn
        self.step = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def build(self, input_shape):
        self.ffn.build(input_shape)

    def call(self, x):
        self.step.assign_add(1.0)
        even = keras.ops.equal(keras.ops.mod(self.step.value, 2.0), 0.0)
        return keras.ops.cond(even, lambda: x + self.ffn(x), lambda: x * 1.0)


def dropped(ffn, x):
    return Dropped(ffn)(x)


CALLS = {f.__name__: f for f in (once, twice, over_time, dropped)}


def model_of(ffn_class, call=once, cls=keras.Model, branch=False):
    """A model around one FFN, of the same weights whatever its class."""
    inputs = keras.Input((5, 8))
    ffn = ffn_class(16, name="ffn")
    x = call(ffn, inputs)
    outputs = keras.layers.Dense(1, name="head")(x)
    if branch:  # a second output, without a loss
        side = ffn_class(16, name="side")
        outputs = [outputs, keras.layers.Dense(1, name="side_head")(side(x))]
    model = cls(inputs, outputs)
    rng = np.random.default_rng(3)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(size=variable.shape, scale=0.3))
    return model


class Clipped(keras.Model):
    """A train step that clips every gradient, as many write it."""

    by = "norm"

    def clip(self, gradients):
        if self.by == "value":
            return [keras.ops.clip(g, -1e-3, 1e-3) for g in gradients]
        if self.by == "norm":
            norms = [keras.ops.sqrt(keras.ops.sum(g * g)) for g in gradients]
            return [
                g * 0.01 / (n + 1e-6) for g, n in zip(gradients, norms, strict=True)
            ]
        known = [g for g in gradients if g is not None]
        norm = keras.ops.sqrt(sum(keras.ops.sum(g * g) for g in known))
        return [g if g is None else g * 0.01 / (norm + 1e-6) for g in gradients]

    def train_step(self, *arguments):
        return getattr(self, f"_{BACKEND}_step")(*arguments)

    def _jax_step(self, state, data):
        import jax

        trainable, resting, slots, metrics = state
        x, y = data[:2]

        def loss_of(trainable):
            predicted, new = self.stateless_call(trainable, resting, x, training=True)
            return keras.ops.mean((predicted - y) ** 2), new

        (loss, resting), gradients = jax.value_and_grad(loss_of, has_aux=True)(
            trainable
        )
        trainable, slots = self.optimizer.stateless_apply(
            slots, self.clip(gradients), trainable
        )
        return {"loss": loss}, (trainable, resting, slots, metrics)

    def _tensorflow_step(self, data):
        import tensorflow as tf

        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(
                keras.ops.square(keras.ops.subtract(self(x, training=True), y))
            )
        variables = self.trainable_variables
        gradients = tape.gradient(loss, variables)
        # An embedding's are sparse.
        gradients = [g if g is None else tf.convert_to_tensor(g) for g in gradients]
        gradients = self.clip(gradients)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return {"loss": loss}

    def _torch_step(self, data):
        import torch

        x, y = data[:2]
        self.zero_grad()
        loss = keras.ops.mean(
            keras.ops.square(keras.ops.subtract(self(x, training=True), y))
        )
        loss.backward()
        variables = self.trainable_variables
        with torch.no_grad():
            gradients = self.clip([v.value.grad for v in variables])
            self.optimizer.apply(gradients, variables)
        return {"loss": loss.detach()}


class ClippedByGlobalNorm(Clipped):
    by = "global norm"


def gradients_of(model, x, y, l2):
    def loss_of(values):
        predicted = model(x)
        penalty = sum(keras.ops.sum(v * v) for v in values)
        return keras.ops.mean(keras.ops.subtract(predicted, y) ** 2) + l2 * penalty

    if BACKEND == "jax":
        import jax

        def stateless(values):
            predicted, _ = model.stateless_call(values, resting, x)
            penalty = sum(keras.ops.sum(v * v) for v in values)
            return keras.ops.mean(keras.ops.subtract(predicted, y) ** 2) + l2 * penalty

        resting = [v.value for v in model.non_trainable_variables]
        values = [v.value for v in model.trainable_variables]
        loss, gradients = jax.value_and_grad(stateless)(values)
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = loss_of([v.value for v in model.trainable_variables])
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    else:
        model.zero_grad()
        loss = loss_of([v.value for v in model.trainable_variables])
        loss.backward()
        gradients = [v.value.grad.clone() for v in model.trainable_variables]
    return float(keras.ops.convert_to_numpy(keras.ops.stop_gradient(loss))), gradients
