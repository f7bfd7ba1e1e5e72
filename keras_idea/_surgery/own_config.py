"""What a layer calls, and how the calls of two layers differ."""

from typing import Any

import keras
import numpy as np

from keras_idea._groups.follow import follow_model, is_dense
from keras_idea._keras.layers import stored_kernel, walk
from keras_idea._keras.symbolic import Call, record


def calls_of(model: keras.layers.Layer) -> list[Call] | None:
    """All calls in a model, in their order; None: not all of it can be followed."""
    recordings = follow_model(model)
    if any(recording.opaque for recording in recordings):
        return None
    calls = [call for recording in recordings for call in recording.calls]
    functions = [
        (call.operation.activation, call.inputs[0].shape)
        for call in calls
        if type(call.operation) is keras.layers.Activation
    ]
    functions += [
        (layer.activation, (2, stored_kernel(layer).shape[-1]))
        for layer in walk(model)
        if is_dense(layer) and layer.built
    ]
    return calls + [call for function in functions for call in _calls_in(*function)]


def _calls_in(activation: Any, shape: tuple[int, ...]) -> list[Call]:
    """The calls in an activation; none of a backend's own function, or of a layer."""
    if isinstance(activation, keras.layers.Layer):
        return []  # it would be built for this shape
    layer = keras.layers.Activation(activation, name="activation")
    layer.build(shape)
    recording = record(layer, lambda part: part is layer)
    return [] if recording.opaque else recording.calls


def first_difference(some: list[Call] | None, others: list[Call] | None) -> str | None:
    """The name of the first operation that differs in type or in its numbers.

    A layer may stand in another's place, as a plain FFN for a prunable one.
    """
    for one, other in zip(some or [], others or [], strict=False):
        kinds = [
            keras.layers.Layer
            if isinstance(call.operation, keras.layers.Layer)
            else type(call.operation)
            for call in (one, other)
        ]
        if kinds[0] is not kinds[1] or not _same(one, other):
            return type(one.operation).__name__
    return None


def _same(one: Call, other: Call) -> bool:
    numbers, others = _numbers(one), _numbers(other)
    return len(numbers) == len(others) and all(
        np.array_equal(a, b, equal_nan=True)
        for a, b in zip(numbers, others, strict=True)
    )


def _numbers(call: Call) -> list[np.ndarray]:
    """What an operation is given that is neither a tensor nor a variable."""
    held: list[Any] = list(call.arguments)
    if not isinstance(call.operation, keras.layers.Layer):
        held += keras.tree.flatten(list(vars(call.operation).values()))
    arrays = [
        np.asarray(keras.ops.convert_to_numpy(part))
        for part in held
        if isinstance(part, (int, float, np.ndarray, np.generic))
        or (keras.ops.is_tensor(part) and not isinstance(part, keras.KerasTensor))
    ]
    return [
        array.astype("float64") for array in arrays if array.dtype.kind not in "OSU"
    ]
