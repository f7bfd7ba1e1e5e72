"""A train step of a model's own, as each backend needs it.

The examples write `train_step` around `objective`, with GradientTape or its like.
"""

from collections.abc import Callable
from typing import Any

import keras


def _torch_step(self: Any, data: Any) -> dict:
    import torch

    self.zero_grad()
    loss = self.objective(data)
    loss.backward()
    weights = self.trainable_weights
    with torch.no_grad():
        self.optimizer.apply([weight.value.grad for weight in weights], weights)
    return {"loss": loss.detach()}


def _tensorflow_step(self: Any, data: Any) -> dict:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = self.objective(data)
    weights = self.trainable_weights
    gradients = tape.gradient(loss, weights)
    self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return {"loss": loss}


def _jax_step(self: Any, state: Any, data: Any) -> tuple:
    import jax

    trainable, resting, slots, metrics = state

    def of(trainable: Any) -> tuple:
        pairs = zip(self.trainable_variables, trainable, strict=True)
        others = zip(self.non_trainable_variables, resting, strict=True)
        with keras.StatelessScope(state_mapping=[*pairs, *others]) as scope:
            loss = self.objective(data)
        found = [scope.get_current_value(v) for v in self.non_trainable_variables]
        return loss, [
            old if new is None else new for new, old in zip(found, resting, strict=True)
        ]

    (loss, resting), gradients = jax.value_and_grad(of, has_aux=True)(trainable)
    trainable, slots = self.optimizer.stateless_apply(slots, gradients, trainable)
    return {"loss": loss}, (trainable, resting, slots, metrics)


#: The `train_step` of a class with a method `objective(data)`.
own_step = {
    "torch": _torch_step,
    "tensorflow": _tensorflow_step,
    "jax": _jax_step,
}[keras.backend.backend()]


def descend(optimizer: Any, weights: list, objective: Callable[[], Any]) -> Any:
    """One step of one of several optimizers, as GANs take them; returns the loss."""
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        for weight in weights:
            weight.value.grad = None
        loss = objective()
        loss.backward()
        with torch.no_grad():
            optimizer.apply([weight.value.grad for weight in weights], weights)
        return loss.detach()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = objective()
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return loss
    raise NotImplementedError("It is written for PyTorch and TensorFlow.")


def backend_gelu() -> Any:
    """The backend's own function, as in `activation=tf.nn.gelu`."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.nn.gelu
    if backend == "jax":
        import jax

        return jax.nn.gelu
    import torch

    return torch.nn.functional.gelu
