"""Makes train functions again; each is tied to the variables it was made for."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import find_groups
from keras_idea.keras_private.callbacks import fit_under_way
from keras_idea.keras_private.layers import has_call, sublayers
from keras_idea.keras_private.models import (
    compilation,
    make_train_function,
    renew_state,
)
from keras_idea.keras_private.optimizer_variables import innermost
from keras_idea.typing import Tensor

#: What a model was compiled for, and its train function.
TrainFunction: TypeAlias = tuple[object, Callable | None]


def swap_train_function(
    model: keras.Model, others: TrainFunction | None, known: bool = False
) -> TrainFunction:
    """Gives a model its train function for another set of optimizer variables.

    Both are kept, so that fits with a pruner and fits without it are compiled once:
    `others` is what this returned when the set was changed last, and the present
    function is returned. `known`: `train_step_of` is to find its train step.
    """
    renew_state(model)
    compiled = compilation(model)
    present = getattr(model, "train_function", None)
    if others is not None and others[0] is compiled:
        model.train_function = others[1]
    else:
        model.train_function = None
    if model.train_function is None and present is not None:
        make_train_function(model, known)
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


def _check_values(model: keras.Model) -> None:
    """Refuses a model whose variables get values in the function under way."""
    if _has_values(model):
        return
    empty = model
    if not has_call(model):
        empty = next(part for part in sublayers(model) if not _has_values(part))
    what = "Model" if isinstance(empty, keras.Model) else "Layer"
    raise ArgumentError(
        f"{what} '{empty.name}' is built inside its first train step, so its weights "
        "have no values yet. Call it on a batch before `fit`, or begin it with "
        "`keras.Input`."
    )


def _has_values(layer: keras.layers.Layer) -> bool:
    values = [variable.value for variable in layer.variables]
    return all(bool(v.is_initialized()) for v in values if hasattr(v, "is_initialized"))


def at_first_batch(model: keras.Model, act: Callable[[], None]) -> Callable[[], None]:
    """Builds a `Sequential` for its first batch, and calls `act` before the step.

    On TensorFlow `fit` would build it by tracing that step, in which its weights get no
    values yet. In another `fit` than that under way nothing is done: an exception may
    end one before its first step. The returned function cancels the call.
    """
    plain, begun = model.train_function, fit_under_way()

    def first(iterator: Any) -> Any:
        call_off()
        if fit_under_way() == begun:
            batch = getattr(iterator, "element_spec", None)
            if batch is None:  # that of `train_on_batch`
                batch = next(iterator)
                iterator = itertools.chain([batch], iterator)
            model.build(tuple(keras.utils.unpack_x_y_sample_weight(batch)[0].shape))
            act()
        model.make_train_function()  # unless it is there
        return model.train_function(iterator)

    def call_off() -> None:
        if model.train_function is first:
            model.train_function = plain

    model.train_function = first
    return call_off


def at_first_step(model: keras.Model, act: Callable[[], None]) -> Callable[[], None]:
    """Calls `act` when a model's optimizer is first applied, and so all is built.

    Only TensorFlow's `fit` builds a model by tracing its train function. That function
    is made again here: one that was traced in an earlier `fit` runs no Python. `act`
    may wrap the optimizer's `apply`. Another `fit`, and the returned function, as in
    `at_first_batch`.
    """
    optimizer, begun = innermost(model.optimizer), fit_under_way()
    make_train_function(model)

    def apply(
        grads: list[Tensor], trainable_variables: Iterable[keras.Variable] | None = None
    ) -> None:
        import tensorflow as tf

        call_off()
        if fit_under_way() not in (None, begun):  # a replica's thread knows of none
            return optimizer.apply(grads, trainable_variables)
        with tf.init_scope():  # out of the function that is being traced
            _check_values(model)
            if not optimizer.built and trainable_variables is not None:
                optimizer.build(list(trainable_variables))
            for group in find_groups(model):
                if group.held_state is not None:
                    # It may get its initial values only later.
                    group.held_state.reset()
            # `act` may run the model, which Keras does outside of a replica.
            context = tf.distribute.get_replica_context()
            if context is None or tf.distribute.has_strategy():
                act()
            else:
                context.merge_call(lambda strategy: act())
        return optimizer.apply(grads, trainable_variables)

    def call_off() -> None:
        if vars(optimizer).get("apply") is apply:
            del optimizer.apply

    optimizer.apply = apply
    return call_off
