"""The features of the residual stream, cut out of a KerasHub model.

Shapes: D features, d of which stay. In each variable the axes of D features are those
that the same class, told a smaller size, makes shorter.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.find_heads import find_heads
from keras_idea.hub.families import HEAD_ARGUMENTS, is_backbone, is_task
from keras_idea.hub.rebuild import rebuild_backbone
from keras_idea.keras_private.layers import sublayers, walk
from keras_idea.keras_private.variables import copy_training, without_values
from keras_idea.shapes.targets import Axis
from keras_idea.surgery.copying import rebuilt

_SIZE = "hidden_dim"
# Families whose embeddings are multiplied by the root of the size.
_SCALED = ("GemmaBackbone", "Gemma3Backbone")


def check_hidden(model: keras.Model) -> keras.Model:
    """The KerasHub backbone of a model; refuses one that cannot be cut exactly."""
    backbone = model.backbone if is_task(model) else model
    name, why = type(backbone).__name__, None
    if not is_backbone(backbone):
        why = "it is no KerasHub task or backbone, whose config says what is as wide"
    elif getattr(backbone, "vision_encoder", None) is not None:
        why = "what its vision encoder adds to the text has that size too"
    elif name not in HEAD_ARGUMENTS or name == "Gemma4Backbone":
        why = f"a smaller {name} would have other heads too, or norms of other kinds"
    elif any(isinstance(la, keras.layers.LayerNormalization) for la in walk(backbone)):
        why = "it has layer norms, which subtract a mean over all features"
    if why is not None:
        raise ArgumentError(
            f"The hidden size of '{model.name}' cannot be made smaller: {why}. Leave "
            f"'{_SIZE}' out of `targets`; it works with "
            f"{', '.join(n for n in HEAD_ARGUMENTS if n != 'Gemma4Backbone')}."
        )
    return backbone


def norms_of(backbone: keras.Model) -> list[keras.layers.Layer]:
    """The norms over all D features, in the backbone's order."""
    size = getattr(backbone, _SIZE)
    found = []
    for layer in walk(backbone):
        shapes = [tuple(variable.shape) for variable in layer.weights]
        if not sublayers(layer) and shapes == [(size,)]:
            found.append(layer)
    return found


def feature_axes(model: keras.Model) -> dict[int, list[int]]:
    """Axes of a model's variables, by `id`, along which the stream's features lie."""
    backbone = check_hidden(model)
    size = getattr(backbone, _SIZE)
    with without_values():
        copy = rebuild_backbone(backbone, _config_of_size(backbone, size - 1))
    pairs = zip(backbone.variables, copy.variables, strict=True)
    return {
        id(old): [
            axis
            for axis, (before, after) in enumerate(
                zip(old.shape, new.shape, strict=True)
            )
            if before != after
        ]
        for old, new in pairs
    }


def take_features(model: keras.Model, kept: np.ndarray) -> keras.Model:
    """A new model with some features, ascending, of the residual stream only.

    Where embeddings are multiplied by the root of the size, they become larger by as
    much as it becomes smaller, and the last norm's scale makes up for it in logits from
    the same embeddings.
    """
    backbone = check_hidden(model)
    size = getattr(backbone, _SIZE)
    copy = rebuilt(model, _config_of_size(backbone, len(kept)))
    take_along(model, copy, size, kept, _SIZE)
    if type(backbone).__name__ in _SCALED:
        _scale_embeddings(copy, math.sqrt(size / len(kept)))
    return copy


def take_along(
    model: keras.Model, copy: keras.Model, size: int, kept: np.ndarray, axis: Axis
) -> None:
    """Gives a copy, whose class made some axes shorter, what is kept of the model's.

    `size` is the length of these axes in the model. Refuses a copy with others.
    """
    for old, new in zip(model.variables, copy.variables, strict=True):
        copy_training(old, new)
        new.assign(_cut(old, new, size, kept, axis))


def _config_of_size(backbone: keras.Model, size: int) -> dict[str, Any]:
    head_dim = HEAD_ARGUMENTS[type(backbone).__name__][2]
    widths = {group.head_dim for group in find_heads(backbone).groups}
    overrides: dict[str, Any] = {_SIZE: size}
    if len(widths) == 1:  # it may follow from the size where it is not given
        overrides[head_dim] = widths.pop()
    return overrides


def _cut(
    old: keras.Variable, new: keras.Variable, size: int, kept: np.ndarray, what: Axis
) -> Any:
    value = old.value
    for axis, (before, after) in enumerate(zip(old.shape, new.shape, strict=True)):
        if before == after:
            continue
        if (before, after) != (size, len(kept)):
            raise ArgumentError(
                f"'{old.path}' of shape {tuple(old.shape)} would become "
                f"{tuple(new.shape)} with a smaller {what!r}, which is no cut. "
                f"Leave {what!r} out of `targets`."
            )
        value = ops.take(value, kept, axis=axis)
    return ops.copy(value)


def _scale_embeddings(model: keras.Model, by: float) -> None:
    backbone = model.backbone if is_task(model) else model
    embedding = backbone.token_embedding
    embedding.embeddings.assign(embedding.embeddings * by)
    scale = backbone.layer_norm.scale  # which is one less
    scale.assign((1 + scale) / by - 1)
