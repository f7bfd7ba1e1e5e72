"""A variable and its slots of the optimizer, cut to the kept units in place."""

import keras
import numpy as np

from keras_idea.keras_private.optimizer_parts import parts
from keras_idea.keras_private.optimizer_variables import rename_key, variable_key
from keras_idea.keras_private.variables import give_value
from keras_idea.layers.cut import Cut
from keras_idea.surgery.optimizer_state import with_slots
from keras_idea.typing import Tensor


def narrow_variable(
    optimizer: keras.Optimizer | None, cut: Cut, kept: np.ndarray
) -> None:
    """Slices, in place, a trained variable and its slots to the kept neurons.

    `kept` is ascending, see `Cut.take`. Without an optimizer there are no slots.
    """
    trainers = [] if optimizer is None else parts(optimizer)
    keys = [variable_key(part, cut.variable) for part in trainers]
    for each in with_slots(optimizer, cut):
        resize(each.variable, each.take(kept))
    for part, key in zip(trainers, keys, strict=True):
        rename_key(part, key, variable_key(part, cut.variable))


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
