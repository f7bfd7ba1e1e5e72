"""Narrows a model in place, in the middle of `fit`."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from keras import ops

from keras_idea._graph.configs import Stuck, set_configs, warn_of_stuck
from keras_idea._graph.follow import followed, has_code
from keras_idea._graph.group import FFN
from keras_idea._groups.cut import Cut
from keras_idea._groups.kinds import CHANNELS, FEATURES
from keras_idea._keras.around import layers_around
from keras_idea._keras.channels import tell_shapes
from keras_idea._keras.layers import (
    all_layers,
    retrack_parameters,
    student_of,
    sublayers,
)
from keras_idea._keras.models import (
    make_train_function,
    renew_shapes,
    renew_state,
)
from keras_idea._keras.optimizer_variables import parts, rename_key, variable_key
from keras_idea._keras.variables import give_value
from keras_idea._signals import held_back
from keras_idea._step.replicas import scope_of
from keras_idea._surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    with_slots,
)
from keras_idea._typing import Tensor


def narrow_variable(
    optimizer: keras.Optimizer | None, cut: Cut, kept: np.ndarray
) -> Callable[[], None]:
    """Slices a trained variable and its slots, in place, to the kept neurons.

    If it fails (no memory is left), all of them are as wide as they were.

    Returns:
        A function that makes them as wide as they were, with zeros for removed neurons
        where there are several numbers per neuron. Called for the last variable first,
        it needs no more memory than narrowing did.
    """
    with _variable_rekeyed(optimizer, cut.variable), contextlib.ExitStack() as undo:
        for each in with_slots(optimizer, cut):
            widen = _widen(each, kept)
            resize(each.variable, each.take(kept))
            undo.callback(widen)
        undo.callback(cut.narrow_labels(kept))
        done = undo.pop_all()

    def put_back() -> None:
        with _variable_rekeyed(optimizer, cut.variable):
            done.close()

    return put_back


@contextlib.contextmanager
def _variable_rekeyed(
    optimizer: keras.Optimizer | None, variable: keras.Variable
) -> Iterator[None]:
    """A scope after which an optimizer knows a variable of another shape."""
    trainers = [] if optimizer is None else parts(optimizer)
    keys = [variable_key(part, variable) for part in trainers]
    try:
        yield
    finally:
        for part, key in zip(trainers, keys, strict=True):
            rename_key(part, key, variable_key(part, variable))


def _widen(cut: Cut, kept: np.ndarray) -> Callable[[], None]:
    """Returns a function that later restores a variable to its present width."""
    variable = cut.variable
    if not cut.weights_axes:  # a number a neuron: biases, masks and what counts them
        return functools.partial(resize, variable, ops.copy(variable.value))
    places, length = cut.kept_entries(kept), variable.shape[cut.axis]
    return lambda: resize(variable, cut.widened(places, length))


def resize(variable: keras.Variable, value: Tensor) -> None:
    """Gives a variable a value of another shape, in place, and frees the old one."""
    old = variable.value
    give_value(variable, value)
    # The local variables of `fit` on jax, and on tensorflow the traced train function,
    # would keep the wide model in memory.
    backend = keras.backend.backend()
    if backend == "jax":
        old.delete()
    elif backend == "tensorflow":
        import tensorflow as tf

        # One variable a replica under a tf.distribute strategy.
        for part in getattr(old, "values", [old]):
            empty = tf.zeros((0,), part.dtype)
            tf.raw_ops.AssignVariableOp(resource=part.handle, value=empty)


@held_back()
def narrow_whole(
    model: keras.Model, pairs: Sequence[tuple[FFN, np.ndarray]]
) -> list[Stuck]:
    """Narrows groups to given units, in place, with configs and graphs.

    Variables and the optimizer's slots are sliced one by one, on their devices, so the
    peak of memory is that of training plus one variable. All objects stay the same.
    Traced functions are made again; compile other models of the same layers again. If a
    cut fails (no memory is left), all groups are as wide as before, with zeros for the
    units that were to go.

    Args:
        model: keras.Model. Built and in sync.
        pairs: list of (group, ascending indices of the units that stay, see
            `Cut.take`).

    Returns:
        list of the layers in the model whose configs cannot follow; of layers around
        it, it warns.

    Raises:
        ArgumentError: If the optimizer's state cannot be cut, before anything is.
    """
    if not pairs:
        return []
    ffns = [ffn for ffn, _ in pairs]
    units = [(ffn.hidden_dim, kept.shape[-1]) for ffn, kept in pairs]
    variables = []
    optimizer = built_optimizer(model)
    if optimizer is not None:
        check_carriable(optimizer)
    with scope_of(model), contextlib.ExitStack() as undo:
        for ffn, kept in pairs:
            ffn.state.full_dim = ffn.full_dim
            undo.callback(ffn.tell)
            for cut in [*ffn.held_cuts(), *ffn.state.cuts()]:
                undo.callback(narrow_variable(optimizer, cut, kept))
                variables.append(cut.variable)
            ffn.tell()
        undo.pop_all()  # all are narrow: nothing is put back
    refresh(model)
    held = [layer for ffn in ffns for layer in ffn.layers]
    for layer in layers_around(model, held):
        warn_of_stuck(set_configs(layer, variables, units))
    stuck = set_configs(model, variables, units)
    kinds = {ffn.kind for ffn in ffns}
    if kinds & {CHANNELS, FEATURES} or has_code(model):  # whose numbers say it now
        tell_shapes(student_of(model), followed(model))
    # Functional models show the shapes of their layers.
    narrowed = set(map(id, held))
    for part in all_layers(model):
        if any(id(layer) in narrowed for layer in sublayers(part)):
            renew_shapes(part)
    return stuck


def refresh(model: keras.Model) -> None:
    """Makes again what Keras made of a model's old variables, such as functions."""
    retrack_parameters(all_layers(model))
    renew_state(model)
    for part in all_layers(model):
        if getattr(part, "train_function", None) is not None:
            make_train_function(part)
        for name in ("test", "predict"):
            if getattr(part, f"{name}_function", None) is not None:
                getattr(part, f"make_{name}_function")(force=True)
        if getattr(part, "generate_function", None) is not None:
            part.generate_function = None  # KerasHub makes it at the next `generate`
