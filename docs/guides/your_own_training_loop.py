"""
Title: Prune in your own training loop
Author: the keras-idea authors
Date created: 2026/11/23
Last modified: 2026/11/26
Description: Prune with `train_on_batch` or in a loop from scratch, on three backends.
Accelerator: None
"""

"""
## Goal

You prune a model without `fit`: in a loop over `train_on_batch`, and in loops from
scratch on JAX, TensorFlow and PyTorch.

You need a backend; the variable KERAS_BACKEND chooses it ("jax", "tensorflow" or
"torch"). If you call `fit` with your own `train_step`, you need no change.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_idea as ki

"""
`fit` with `IdeaPruneCallback` scores the gradients that the model's optimizer receives.
If your `train_step` clips or scales the gradients, the callback scores the clipped or
scaled ones.

The callback follows the `call` of the model. It cannot see what your `train_step` or
`compute_loss` does with hidden activations. If one of them reads the neurons of an FFN,
for example for a penalty, narrowing would change the loss. Leave that FFN out with
`groups=`.

If the model has no `call`, because `train_step` calls an encoder and a decoder, the
callback follows each of these models alone. It prunes inside them, and their inputs and
outputs stay. Save them, or `ki.compact(model.encoder)`. A `Dense` layer that
`train_step` calls directly stays wide: put the layers in a `Sequential`.

## Loop over `train_on_batch`

This loop is the same on every backend. Keras's own `CallbackList` calls the callback.
"""


def by_train_on_batch(model, prune, batches, epochs):
    callbacks = keras.callbacks.CallbackList([prune], model=model)
    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        for step, (x, y) in enumerate(batches):
            callbacks.on_train_batch_begin(step)
            logs = model.train_on_batch(x, y, return_dict=True)
            callbacks.on_train_batch_end(step, logs)
        callbacks.on_epoch_end(epoch, logs)
    callbacks.on_train_end()


"""
## Write a loop from scratch

These loops follow Keras's guides "Writing a training loop from scratch". Follow three
rules:

- Compile the model with the loop's optimizer, so that the callback finds it.
- Call the hooks of epochs, not those of batches. The model then becomes narrow at the
  end of an epoch.
- Take steps with `optimizer.apply`, `apply_gradients` or `stateless_apply`. Call the
  functions that contain them for the first time after `on_train_begin`.

### JAX

Read the state from the model at the beginning of an epoch, and write it back before the
epoch ends. The callback reads the model then and may change its shapes. `jax.jit`
compiles the step function again for the new shapes.
"""


def by_hand_on_jax(model, optimizer, loss_fn, prune, batches, epochs):
    import jax

    model.compile(optimizer)
    callbacks = keras.callbacks.CallbackList([prune], model=model)

    def loss_of(trainable, resting, x, y):
        predicted, resting = model.stateless_call(trainable, resting, x, training=True)
        return loss_fn(y, predicted), resting

    @jax.jit
    def train_step(state, x, y):
        trainable, resting, slots = state
        gradient_of = jax.value_and_grad(loss_of, has_aux=True)
        (loss, resting), gradients = gradient_of(trainable, resting, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return loss, (trainable, resting, slots)

    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        variables = (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
        state = tuple([v.value for v in group] for group in variables)
        for x, y in batches:
            loss, state = train_step(state, x, y)
        for group, values in zip(variables, state, strict=True):
            for variable, value in zip(group, values, strict=True):
                variable.assign(value)
        callbacks.on_epoch_end(epoch)
    callbacks.on_train_end()


"""
### TensorFlow

A `tf.function` keeps the variables that it was traced with. Make a new one when the
model becomes narrower.
"""


def by_hand_on_tensorflow(model, optimizer, loss_fn, prune, batches, epochs):
    import tensorflow as tf

    model.compile(optimizer)
    callbacks = keras.callbacks.CallbackList([prune], model=model)

    def make_train_step():
        @tf.function
        def train_step(x, y):
            with tf.GradientTape() as tape:
                loss = loss_fn(y, model(x, training=True))
            gradients = tape.gradient(loss, model.trainable_weights)
            optimizer.apply(gradients, model.trainable_weights)
            return loss

        return train_step

    callbacks.on_train_begin()
    widths = None
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        if widths != [ffn.hidden_dim for ffn in ki.find_ffns(model)]:
            widths = [ffn.hidden_dim for ffn in ki.find_ffns(model)]
            train_step = make_train_step()
        for x, y in batches:
            train_step(x, y)
        callbacks.on_epoch_end(epoch)
    callbacks.on_train_end()


"""
### PyTorch

Use Keras's optimizer, as in Keras's guide. The callback cannot follow an optimizer of
`torch.optim`: at the end of the first epoch, the run stops with an error that says so.
"""


def by_hand_on_torch(model, optimizer, loss_fn, prune, batches, epochs):
    import torch

    model.compile(optimizer)
    callbacks = keras.callbacks.CallbackList([prune], model=model)

    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        for x, y in batches:
            loss = loss_fn(y, model(x, training=True))
            model.zero_grad()
            loss.backward()
            trainable_weights = [v for v in model.trainable_weights]
            gradients = [v.value.grad for v in trainable_weights]
            with torch.no_grad():
                optimizer.apply(gradients, trainable_weights)
        callbacks.on_epoch_end(epoch)
    callbacks.on_train_end()


"""
## Compare the loops with `fit`

All loops end with the same weights as `fit`.
"""

rng = np.random.default_rng(0)
x = rng.normal(size=(256, 8)).astype("float32")
y = np.tanh(x @ rng.normal(size=(8, 4))).astype("float32")
batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
EPOCHS = 6


def new_model():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(16)(inputs)
    hidden = hidden + ki.PrunableGatedFFN(64)(hidden)
    return keras.Model(inputs, keras.layers.Dense(4)(hidden))


def new_prune():
    # Pruning ends with an epoch: there, a loop from scratch narrows the model.
    return ki.IdeaPruneCallback(target_dim=16, begin_step=16, prune_steps=16)


expected = new_model()
expected.compile(keras.optimizers.AdamW(0.01), "mse")
expected.fit(
    x,
    y,
    batch_size=32,
    epochs=EPOCHS,
    shuffle=False,
    callbacks=[new_prune()],
    verbose=0,
)


def compare(name, model):
    pairs = zip(model.get_weights(), expected.get_weights(), strict=True)
    most = max(float(np.abs(mine - other).max()) for mine, other in pairs)
    print(f"{name}: weights differ from fit's by at most {most:.1e}")


models = [new_model(), new_model()]
models[0].compile(keras.optimizers.AdamW(0.01), "mse")
by_train_on_batch(models[0], new_prune(), batches, EPOCHS)
compare("train_on_batch", models[0])

by_hand = {
    "jax": by_hand_on_jax,
    "tensorflow": by_hand_on_tensorflow,
    "torch": by_hand_on_torch,
}[keras.backend.backend()]
loss_fn = keras.losses.MeanSquaredError()
by_hand(models[1], keras.optimizers.AdamW(0.01), loss_fn, new_prune(), batches, EPOCHS)
compare(f"from scratch on {keras.backend.backend()}", models[1])
