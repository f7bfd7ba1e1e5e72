"""Removes features of the residual stream, alone or together with heads.

The graph finds the stream: all that makes, reads and normalizes it. D features, d of
which stay.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._finding.explain import some_of
from keras_idea._graph.find import graph_of
from keras_idea._graph.group import FFN
from keras_idea._groups.cut import Axis, Role
from keras_idea._groups.kinds import FEATURES
from keras_idea._shapes.blocks import owner_of
from keras_idea._surgery.narrow_in_place import narrow_whole
from keras_idea.errors import ArgumentError
from keras_idea.functional.importance import activation_sums
from keras_idea.methods.calibration import Samples, captured
from keras_idea.methods.captures import layer_capture

# Families that multiply embeddings by the root of the size.
_SCALED = ("GemmaBackbone", "Gemma3Backbone", "T5GemmaBackbone")


def streams_of(model: keras.Model) -> list[FFN]:
    """Returns a handle for each residual stream, or each stage, of a model."""
    groups = [group for group in graph_of(model).groups if group.kind == FEATURES]
    if not groups:
        raise ArgumentError(
            f"`targets['features']`: '{model.name}' has no stream of features that "
            "layers normalize and nothing else reads: "
            f"{some_of(graph_of(model).left_out)}. Leave it out."
        )
    pooled = getattr(owner_of(model), "pooled_dense", None)
    if pooled is not None:  # BERT's configs have one number for what it reads and makes
        groups = [_with_pooled(group, pooled) for group in groups]
    return [dataclasses.replace(group, name=group.layer.path) for group in groups]


def _with_pooled(group: FFN, layer: Any) -> FFN:
    if all(axis.layer is not layer for axis in group.axes):
        return group
    held: list[tuple[Any, int, Role]] = [(layer.kernel, 1, "makes")]
    held += [] if layer.bias is None else [(layer.bias, 0, "own")]
    more = [Axis(v, axis, role, [layer], group.labels) for v, axis, role in held]
    return dataclasses.replace(group, axes=[*group.axes, *more])


def stream_importance(
    model: keras.Model, streams: Sequence[FFN], samples: Samples
) -> list[np.ndarray]:
    """Returns the mean size of each feature after the norms, summed over the norms.

    One array for each stream.

    Source: Minitron (arXiv 2407.14679).
    """
    norms = [_norms(stream) for stream in streams]
    captures = [
        layer_capture(norm, lambda _, outputs, mask: activation_sums(outputs, mask))
        for norm in [norm for each in norms for norm in each]
    ]
    sums = iter(captured(model, captures, samples))
    means = [[s / max(n, 1.0) for s, n in (next(sums) for _ in each)] for each in norms]
    return [sum(each, start=np.zeros(1)) for each in means]


def _norms(stream: FFN) -> list[keras.layers.Layer]:
    """Returns the layers that normalize over a stream's features."""
    held = {id(axis.layer): axis.layer for axis in stream.axes if axis.role == "own"}
    makers = set(map(id, stream.makers))
    return [
        layer
        for layer in held.values()
        if id(layer) not in makers
        and all(len(variable.shape) == 1 for variable in layer.weights)
    ]


def narrow_streams(
    model: keras.Model,
    streams: Sequence[tuple[FFN, np.ndarray]],
    others: Sequence[tuple[FFN, np.ndarray]],
) -> None:
    """Narrows streams to features (ascending), and other groups with them, in place.

    If embeddings are multiplied by the root of the size, they are enlarged to make up
    for the smaller size, and the last norm's scale is reduced by the same factor.

    Raises:
        ArgumentError: If a config cannot say the new sizes.
    """
    sizes = [(stream.hidden_dim, len(kept)) for stream, kept in streams]
    stuck = narrow_whole(model, [*streams, *others])
    if stuck:
        layer, why = stuck[0]
        raise ArgumentError(
            f"The config of {type(layer).__name__} '{layer.name}' {why}. Where a head "
            "is hidden_dim / heads wide, cut both by one share: targets="
            '{"features": 0.5, "kv_groups": 0.5}. Or cut '
            "keras_idea.as_functional(model)."
        )
    backbone = owner_of(model)
    if type(backbone).__name__ in _SCALED and streams:
        (size, left), *_ = sizes
        by = math.sqrt(size / left)
        table = backbone.token_embedding.embeddings
        table.assign(table * by)
        scale = backbone.layer_norm.scale  # stored minus one
        scale.assign((1 + scale) / by - 1)
