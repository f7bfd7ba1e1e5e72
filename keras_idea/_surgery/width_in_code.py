"""A model that computes with the number of its neurons, `h / h.shape[-1]`, is refused.

Narrowed it would compute something else. It is followed twice on symbolic tensors, as
it is and as if it were narrower, and the numbers in its operations are compared.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import keras

from keras_idea._finding.find import FFN
from keras_idea._graph.configs import as_if, set_configs
from keras_idea._groups.channels import ChannelGroup
from keras_idea._groups.dense import DenseGroup
from keras_idea._groups.find_channels import followed, has_code
from keras_idea._groups.follow import follow_model, is_dense
from keras_idea._groups.kinds import CHANNELS
from keras_idea._keras.layers import stored_kernel, walk
from keras_idea._keras.symbolic import Call, record
from keras_idea._signals import held_back
from keras_idea._surgery.as_functional import first_difference
from keras_idea.errors import ArgumentError


def check_width_in_code(model: keras.Model, ffns: Sequence[FFN]) -> None:
    """Refuses FFNs of Dense layers of whose width the model's code makes a number.

    Likewise channels. What cannot be followed at another width is not judged.
    """
    kinds = (DenseGroup, ChannelGroup)
    found = [ffn for ffn in ffns if isinstance(ffn.weights, kinds)]
    if not has_code(model):  # then no code but Keras's sees a number of channels
        found = [ffn for ffn in found if ffn.kind != CHANNELS]
    if not found or _difference(model, found) is None:
        return
    for ffn in found:
        operation = _difference(model, [ffn])
        if operation is not None:
            raise ArgumentError(
                f"The {ffn.units} of {ffn.name} cannot be pruned: the model computes "
                f"with their number, {ffn.hidden_dim} (in {operation}), so it would "
                "compute something else once it is narrow. Give the layer that number "
                "as an argument of its own, which its config holds, or leave it out: "
                f"groups=lambda ffn: ffn.name != {ffn.name!r}."
            )


@held_back()  # for the model says meanwhile that it is narrower
def _difference(model: keras.Model, ffns: Sequence[FFN]) -> str | None:
    """The first operation that is given another number in the narrower model."""
    half = [(ffn.weights, max(1, ffn.hidden_dim // 2)) for ffn in ffns]
    states = [
        held.cuts() if (held := ffn.held_state) and ffn.holds_state else []
        for ffn in ffns
    ]
    channels = any(ffn.kind == CHANNELS for ffn in ffns)
    calls = functools.partial(_calls_of_channels if channels else _calls_of, model)
    wide = calls()
    with contextlib.ExitStack() as undo:
        variables = undo.enter_context(as_if(model, half, states))
        set_configs(model, variables, undo=undo)
        found = first_difference(wide, calls())
    # Code that does something else each time says nothing.
    return None if found and first_difference(wide, calls()) else found


def _calls_of_channels(model: keras.Model) -> list[Call] | None:
    """As `calls_of`, with layers followed that hold convolutions alone."""
    recordings = [followed(model), followed(model, training=True)]
    if any(recording.opaque for recording in recordings):
        return None
    return [call for recording in recordings for call in recording.calls]


def _calls_of(model: keras.layers.Layer) -> list[Call] | None:
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
