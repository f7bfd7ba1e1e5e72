"""Changing the shape of a Keras variable, in place."""

import keras

from keras_idea.keras_private.variables import give_value
from keras_idea.typing import Tensor


def resize(variable: keras.Variable, value: Tensor) -> None:
    """Gives a variable a value of another shape, but the same rank and dtype, in place.

    The object stays, so everything that refers to it goes on doing so; the layout over
    devices is kept. The old value's memory is free at once.
    """
    old = variable.value
    give_value(variable, value)
    # Else the wide model would stay in memory beside the narrow one: on jax the local
    # variables of `fit` refer to it until the next step is done, on tensorflow the
    # traced train function does for good.
    backend = keras.backend.backend()
    if backend == "jax":
        old.delete()
    elif backend == "tensorflow":
        import tensorflow as tf

        # One variable a replica under a tf.distribute strategy.
        for part in getattr(old, "values", [old]):
            empty = tf.zeros((0,), part.dtype)
            tf.raw_ops.AssignVariableOp(resource=part.handle, value=empty)
