"""Makes a functional model of Keras's layers that computes what another model does.

It is saved layer by layer, so it can be narrowed anywhere.
"""

import collections
import functools
import itertools
from collections.abc import Iterator
from typing import TypeAlias

import keras
import numpy as np

from keras_idea._graph.follow import OPEN_SIZE, followed
from keras_idea._keras.channels import own_reshape
from keras_idea._keras.layers import copy_flags, walk
from keras_idea._keras.symbolic import Call, Recording, tensors_in
from keras_idea._surgery.copying import (
    carry_settings,
    copy_values,
    of_config,
    variables_of,
)
from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import check_same_outputs, example_arrays, outputs_of

#: The layers of a model, each with its copy.
Copies: TypeAlias = dict[keras.layers.Layer, keras.layers.Layer]

# As many as nothing was recorded with.
_SAMPLES = 3


def as_functional(model: keras.Model) -> keras.Model:
    """Copies a model as one functional model of the layers that it calls.

    Use it for KerasHub's image models, whose presets cannot hold the channels of each
    convolution: what is pruned in the copy can be saved and loaded. A block stays one
    layer if it computes with weights itself, adds a loss, or draws random numbers. The
    copy shares no variable with the model. It is not compiled, and has no preprocessor:
    call `task.preprocessor` on the data yourself.

    Args:
        model: keras.Model. Built, and of one or more tensors as inputs: functional,
            `Sequential`, a KerasHub backbone or task, or of your own.

    Returns:
        keras.Model: functional, with the same inputs, outputs and values.

    Raises:
        ValueError: If the model cannot be followed on symbolic tensors, computes with
            an open size of its input, if two of its blocks share a layer, or if the
            copy gives other outputs or losses, in training or evaluation.

    Example:
    >>> inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    >>> outer = keras.Sequential([inner, keras.layers.Dense(2)])
    >>> [type(layer).__name__ for layer in as_functional(outer).layers]
    ['InputLayer', 'Dense', 'Dense']
    """
    if not isinstance(model, keras.Model) or not model.built:
        raise ArgumentError(
            "`model` must be a built Keras model. Received: "
            f"{type(model).__name__}. Call it once on a batch."
        )
    calls = _calls(model)
    copies: Copies = {}
    given = getattr(model, "input", None)
    if given is None:
        given = calls.inputs if len(calls.inputs) > 1 else calls.inputs[0]
    inputs = keras.tree.map_structure(
        lambda tensor: keras.Input(tensor.shape[1:], dtype=tensor.dtype), given
    )
    made = dict(zip(map(id, calls.inputs), keras.tree.flatten(inputs), strict=True))
    try:
        for call in calls.calls:
            _again(call, copies, made)
        outputs = [made[id(tensor)] for tensor in calls.outputs]
        if isinstance(getattr(model, "output", None), dict):
            outputs = keras.tree.pack_sequence_as(model.output, outputs)
        elif len(outputs) == 1:
            outputs = outputs[0]
        copy = keras.Model(inputs, outputs, name=model.name)
        copy_flags(model, copy)
        _check_apart(copies)
        for pair in copies.items():
            _carry_over(*pair)
        _check_same(model, copy)
    except Exception as error:  # of a user's code on tensors of other sizes
        raise ArgumentError(
            f"Model '{model.name}' cannot be made functional: "
            f"{what_was_raised(error)}. A block may compute with an open size of the "
            "input, or with something that only its own call knows. Give the input a "
            "fixed shape, or build a functional model of Keras's layers yourself."
        ) from error
    return copy


def _copy_of(layer: keras.layers.Layer, copies: Copies) -> keras.layers.Layer:
    """Returns the copy of a layer, the same at each call, with its path as name."""
    if layer not in copies:
        path = (layer.path or layer.name).replace("/", "_")
        numbered = (f"{path}_{number}" for number in itertools.count(1))
        taken = {copy.name for copy in copies.values()}
        names = itertools.chain([layer.name, path], numbered)
        copies[layer] = of_config(layer, next(n for n in names if n not in taken))
    return copies[layer]


def _carry_over(layer: keras.layers.Layer, copy: keras.layers.Layer) -> None:
    """Gives a copy the values that a layer has, and all that was set on it."""
    pairs = list(zip(walk(layer), walk(copy), strict=True))
    carry_settings(pairs, pairs)
    for pair in pairs:
        copy_values(variables_of(layer, *pair))


def _check_apart(copies: Copies) -> None:
    """Refuses layers of which there would be two copies, which train apart."""
    held = [part for layer in copies for part in set(walk(layer))]
    for part, count in collections.Counter(held).items():
        if count > 1 and part.weights:
            raise ArgumentError(f"layer '{part.name}' is in {count} of its blocks")


def _calls(model: keras.Model) -> Recording:
    """Records what a model calls, with blocks whole that use weights of their own."""
    whole = set[keras.layers.Layer]()
    found = followed(model)
    trained = followed(model, training=True)
    while more := {*_to_leave_whole(model, found), *trained.losing} - whole:
        whole |= more
        found = followed(model, whole=whole)
    if found.holders or model in whole or not found.calls:
        _, why = found.opaque.get(model, (model, None))
        raise ArgumentError(
            f"Model '{model.name}' cannot be made functional: it cannot be followed on "
            f"symbolic tensors{f' ({why})' if why else ''}. Build a functional model "
            "of Keras's layers yourself."
        )
    return found


def _to_leave_whole(
    model: keras.Model, recording: Recording
) -> Iterator[keras.layers.Layer]:
    """Yields the innermost layers looked into that do more than call others."""
    yield from recording.opaque
    for layer in recording.called:
        regularized = layer is not model and layer.activity_regularizer is not None
        if regularized or layer in recording.losing:
            yield layer
    own = {
        id(variable)
        for call in recording.calls
        if not isinstance(call.operation, keras.layers.Layer)
        for variable in [*call.arguments, *vars(call.operation).values()]
        if isinstance(variable, keras.Variable)
    }
    own |= {id(variable) for variable in recording.read}
    for layer in recording.called:
        kept = {
            id(variable)
            for part in walk(layer)
            if part is not layer and part in recording.called
            for variable in part.variables
        }
        if any(id(v) in own and id(v) not in kept for v in layer.variables):
            yield layer


def _again(call: Call, copies: Copies, made: dict[int, keras.KerasTensor]) -> None:
    """Calls a copy of what was called, on what was made in place of its inputs."""
    (args, named), masks = keras.tree.map_structure(
        lambda leaf: made.get(id(leaf), leaf),
        (call.given, call.masks),
        none_is_leaf=True,
    )
    operation = own_reshape(call.operation)
    if type(operation) is keras.layers.Identity:
        made[id(call.outputs[0])] = args[0]
        return
    if isinstance(operation, keras.layers.Layer):
        operation = _copy_of(operation, copies)
        named |= masks
        if named.get("training") is None:
            named.pop("training", None)
    outputs = tensors_in(operation(*args, **named))
    made.update(zip(map(id, call.outputs), outputs, strict=True))


def _check_same(model: keras.Model, copy: keras.Model) -> None:
    """Compares outputs and losses on more and larger samples than were recorded."""
    example = example_arrays(model, 2 * OPEN_SIZE)
    if example is None:
        return
    example = keras.tree.map_structure(
        lambda array: np.resize(array, (_SAMPLES, *array.shape[1:])), example
    )
    for training in (False, True):
        outputs = functools.partial(outputs_of, inputs=example, training=training)
        same = functools.partial(np.array_equal, equal_nan=True)
        if all(map(same, outputs(model), outputs(model))):  # else they are random
            check_same_outputs(model, copy, outputs)
