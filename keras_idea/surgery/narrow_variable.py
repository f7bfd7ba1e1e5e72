"""A variable and its slots of the optimizer, cut to the kept units in place."""

import contextlib
import functools
from collections.abc import Callable, Iterator

import keras
import numpy as np
from keras import ops

from keras_idea.groups.cut import Cut
from keras_idea.keras_private.optimizer_parts import parts
from keras_idea.keras_private.optimizer_variables import rename_key, variable_key
from keras_idea.keras_private.variables import give_value
from keras_idea.surgery.optimizer_state import with_slots
from keras_idea.typing import Tensor


def narrow_variable(
    optimizer: keras.Optimizer | None, cut: Cut, kept: np.ndarray
) -> Callable[[], None]:
    """Slices, in place, a trained variable and its slots to the kept neurons.

    `kept` is ascending, see `Cut.take`. Without an optimizer there are no slots. If it
    fails (no memory is left), all of them are as wide as they were.

    Returns:
        A function that makes them as wide as they were. The neurons that went are zeros
        then, in what has several numbers of each. Called for one variable after the
        other, the last first, it needs no more memory than narrowing did.
    """
    with _known(optimizer, cut.variable), contextlib.ExitStack() as undo:
        for each in with_slots(optimizer, cut):
            widen = _widen(each, kept)
            resize(each.variable, each.take(kept))
            undo.callback(widen)
        done = undo.pop_all()

    def put_back() -> None:
        with _known(optimizer, cut.variable):
            done.close()

    return put_back


@contextlib.contextmanager
def _known(
    optimizer: keras.Optimizer | None, variable: keras.Variable
) -> Iterator[None]:
    """A scope after which an optimizer knows a variable that has changed its shape."""
    trainers = [] if optimizer is None else parts(optimizer)
    keys = [variable_key(part, variable) for part in trainers]
    try:
        yield
    finally:
        for part, key in zip(trainers, keys, strict=True):
            rename_key(part, key, variable_key(part, variable))


def _widen(cut: Cut, kept: np.ndarray) -> Callable[[], None]:
    """What will make a variable, narrow by then, as wide as it is now."""
    variable = cut.variable
    if not cut.weights_axes:  # a number a neuron: biases, masks and what counts them
        return functools.partial(resize, variable, ops.copy(variable.value))
    places, length = cut.places(kept), variable.shape[cut.axis]
    return lambda: resize(variable, cut.widened(places, length))


def resize(variable: keras.Variable, value: Tensor) -> None:
    """Gives a variable a value of another shape, but the same rank and dtype, in place.

    The object stays, so everything that refers to it continues to do so; the layout
    over devices is kept. The old value's memory is free at once.
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
