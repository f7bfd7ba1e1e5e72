"""Removes features of the residual stream from a KerasHub model.

Shapes: D features, d of which stay. An axis of a variable holds features if the model's
class makes it shorter when its config has a smaller size.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._keras.attention import projections_of
from keras_idea._keras.layers import sublayers, walk
from keras_idea._keras.variables import copy_training
from keras_idea._shapes.blocks import owner_of
from keras_idea._surgery.copying import rebuilt
from keras_idea.errors import ArgumentError
from keras_idea.functional.importance import activation_sums
from keras_idea.hub.families import HEADS
from keras_idea.methods.calibration import Samples, captured
from keras_idea.methods.captures import layer_capture

_SIZE = "hidden_dim"  # what the configs call D
# Other families derive other sizes from D, or normalize by a mean over all features.
_FAMILIES = [name for name in HEADS if name != "Gemma4Backbone"]
# Families that multiply embeddings by the root of the size.
_SCALED = ("GemmaBackbone", "Gemma3Backbone")


def backbone_of(model: keras.Model) -> keras.Model:
    """Returns the backbone of a KerasHub model whose features can be cut exactly."""
    backbone = owner_of(model)
    sees = getattr(backbone, "vision_encoder", None) is not None
    if type(backbone).__name__ not in _FAMILIES or sees:
        raise ArgumentError(
            f"`targets['features']` supports {', '.join(_FAMILIES)}, for text only. "
            f"Received: '{model.name}', a {type(backbone).__name__}."
        )
    return backbone


def stream_importance(model: keras.Model, samples: Samples) -> np.ndarray:
    """Returns the mean size of each feature after the norms, summed over the norms.

    Source: Minitron (arXiv 2407.14679).
    """
    backbone = backbone_of(model)
    norms = [
        layer
        for layer in walk(backbone)
        if not sublayers(layer)
        and [tuple(v.shape) for v in layer.weights] == [(getattr(backbone, _SIZE),)]
    ]
    captures = [
        layer_capture(norm, lambda _, outputs, mask: activation_sums(outputs, mask))
        for norm in norms
    ]
    sums = captured(model, captures, samples)
    return sum((s / max(n, 1.0) for s, n in sums), start=np.zeros(1))


def take_features(model: keras.Model, kept: np.ndarray) -> keras.Model:
    """Returns a new model with the given features (ascending) of the residual stream.

    If embeddings are multiplied by the root of the size, they are enlarged to make up
    for the smaller size, and the last norm's scale is reduced by the same factor.
    """
    backbone = backbone_of(model)
    size = getattr(backbone, _SIZE)
    overrides: dict[str, Any] = {_SIZE: len(kept)}
    widths = {
        parts.key.partial_output_shape[-1]
        for layer in walk(backbone)
        if (parts := projections_of(layer)) is not None
    }
    if len(widths) == 1:  # else the config may derive it from the size
        overrides["head_dim"] = widths.pop()
    copy = rebuilt(model, overrides)
    take_along(model, copy, size, kept)
    if type(backbone).__name__ in _SCALED:
        by = math.sqrt(size / len(kept))
        new = owner_of(copy)
        new.token_embedding.embeddings.assign(new.token_embedding.embeddings * by)
        scale = new.layer_norm.scale  # stored minus one
        scale.assign((1 + scale) / by - 1)
    return copy


def take_along(
    model: keras.Model, copy: keras.Model, size: int, kept: np.ndarray
) -> None:
    """Copies what stays of each variable along the axes that are shorter in the copy.

    `size` is the length of these axes in the model. Keras raises if another differs.
    """
    for old, new in zip(model.variables, copy.variables, strict=True):
        copy_training(old, new)
        value = old.value
        for axis, lengths in enumerate(zip(old.shape, new.shape, strict=True)):
            if lengths == (size, len(kept)):
                value = ops.take(value, kept, axis=axis)
        new.assign(ops.copy(value))
