"""Narrowing a model where it stands, in the middle of `fit`."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
from keras import ops

from keras_idea._finding.find import FFN
from keras_idea._groups.cut import Cut
from keras_idea._graph.find import followed
from keras_idea._groups.kinds import CHANNELS
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
from keras_idea._surgery.checks import backbones_of, layers_of
from keras_idea._surgery.optimizer_state import (
    built_optimizer,
    check_carriable,
    with_slots,
)
from keras_idea._surgery.own_config import follow_widths, warn_of_stuck
from keras_idea._typing import Tensor
from keras_idea.hub.ffn import known_ffns


def narrow_variable(
    optimizer: keras.Optimizer | None, cut: Cut, kept: np.ndarray
) -> Callable[[], None]:
    """Slices, in place, a trained variable and its slots to the kept neurons.

    `kept` is ascending, see `Cut.take`. Without an optimizer there are no slots. If it
    fails (no memory is left), all of them are as wide as they were.

    Returns:
        A function that makes them as wide as they were. Removed neurons are then
        zeros in variables with several numbers per neuron. Called for one variable
        after the other, the last first, it needs no more memory than narrowing did.
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
    """A scope after which an optimizer knows a variable that has changed its shape."""
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


@held_back()
def narrow_to(
    model: keras.Model,
    pairs: Sequence[tuple[FFN, np.ndarray]],
) -> None:
    """Narrows FFNs to given neurons, in place.

    Kernels, biases, scores and the optimizer's slots are sliced one by one, on their
    devices, so the peak of memory is that of training plus one variable. The layers,
    variables and the optimizer stay the same objects. Functions that were traced with
    the old shapes are made again; another model of the same layers must be compiled
    again. Indices are ascending, see `Cut.take`. Refuses an optimizer whose state
    cannot be cut, before anything is. If a cut fails (no memory is left), all FFNs are
    as wide as before, with zeros for the neurons that were to go.
    """
    optimizer = built_optimizer(model)
    if optimizer is not None and pairs:
        check_carriable(optimizer)
    with scope_of(model), contextlib.ExitStack() as undo:
        for ffn, kept in pairs:
            ffn.state.full_dim = ffn.full_dim
            undo.callback(ffn.weights.set_hidden_dim, ffn.hidden_dim)
            for cut in [*ffn.held_cuts(), *ffn.state.cuts()]:
                undo.callback(narrow_variable(optimizer, cut, kept))
            ffn.weights.set_hidden_dim(kept.shape[-1])
        undo.pop_all()  # all are narrow: nothing is put back
    if pairs:
        for backbone in backbones_of(model, [ffn for ffn, _ in pairs]):
            for known in known_ffns(backbone):
                known.tell_width()
        if any(ffn.kind == CHANNELS for ffn, _ in pairs):
            tell_shapes(student_of(model), followed(model))
        refresh(model)


@held_back()
def narrow_whole(
    model: keras.Model, pairs: Sequence[tuple[FFN, np.ndarray]]
) -> list[keras.layers.Layer]:
    """As `narrow_to`; and the configs of blocks, and what shows shapes, follow.

    Returns the blocks in the model whose configs cannot follow; of layers around it, it
    warns.
    """
    if not pairs:
        return []
    ffns = [ffn for ffn, _ in pairs]
    before = [(ffn, width) for ffn in ffns for width in (ffn.full_dim, ffn.hidden_dim)]
    narrow_to(model, pairs)
    widths = {(width, ffn.hidden_dim) for ffn, width in before}
    for layer in layers_around(model, layers_of(ffns)):
        warn_of_stuck(follow_widths(layer, widths))
    stuck = follow_widths(model, widths)
    refresh_graphs(model, ffns)
    return stuck


def refresh_graphs(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Has functional models in a model show the shapes of its narrow FFNs."""
    narrowed = {id(layer) for ffn in ffns for layer in ffn.layers}
    for part in all_layers(model):
        if any(id(layer) in narrowed for layer in sublayers(part)):
            renew_shapes(part)


def refresh(model: keras.Model) -> None:
    """Updates what Keras stores about a model whose variables have changed.

    Its functions, and those of models in it (the student of a `Distiller`), are made
    again.
    """
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
