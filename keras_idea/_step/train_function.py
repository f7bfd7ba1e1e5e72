"""Makes train functions again; each is tied to the variables it was made for."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras

from keras_idea._keras.models import (
    compilation,
    make_train_function,
    renew_state,
)
from keras_idea._typing import Tensor

#: What a model was compiled for, and its train function.
TrainFunction: TypeAlias = tuple[object, Callable | None]


def swap_train_function(
    model: keras.Model, others: TrainFunction | None
) -> TrainFunction:
    """Gives a model its train function for another set of optimizer variables.

    Both are kept, so that fits with a pruner and fits without it are compiled once:
    `others` is what this returned when the set was changed last, and the present
    function is returned.
    """
    renew_state(model)
    compiled = compilation(model)
    present = getattr(model, "train_function", None)
    if others is not None and others[0] is compiled:
        model.train_function = others[1]
    else:
        model.train_function = None
    if model.train_function is None and present is not None:
        make_train_function(model)
    return compiled, present


def wait_for_gradients(
    gradients: Sequence[Tensor],
) -> contextlib.AbstractContextManager:
    """A scope in which an optimizer's step waits for gradients.

    Where data of unknown length end, Keras on tensorflow calls the train function once
    more, in which the optimizer would count a step that nothing is trained in.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.control_dependencies(gradients)
