"""The channels of a model's convolutions, found once."""

import weakref

import keras

from keras_idea._graph.configs import why_not_held
from keras_idea._groups.find_channels import (
    FoundChannels,
    find_channel_groups,
    slides,
)
from keras_idea._keras.layers import is_built, student_of, walk

_NONE = FoundChannels([], {}, {})
# What was found in a model, and of which layers it was.
_FOUND: weakref.WeakKeyDictionary[keras.layers.Layer, tuple[list, FoundChannels]] = (
    weakref.WeakKeyDictionary()
)


def find_channels(model: keras.layers.Layer) -> FoundChannels:
    """As `find_channel_groups`; a model is followed once, as long as its layers stay.

    Nothing is followed in a model without convolutions.
    """
    layers = list(walk(model))
    convolutions = [layer for layer in layers if slides(layer) and layer.built]
    if not convolutions or not is_built(student_of(model)):
        return _NONE
    present: list = [(id(layer), layer.built) for layer in layers]
    present += [getattr(layer, "lora_enabled", None) for layer in layers]
    known = _FOUND.get(model)
    if known is None or known[0] != present or not _is_current(known[1]):
        found = _without_hub(model, find_channel_groups(model))
        known = _FOUND[model] = present, found
    return known[1]


def _is_current(found: FoundChannels) -> bool:
    return not found.groups or found.groups[0].whole.is_current


def _without_hub(model: keras.layers.Layer, found: FoundChannels) -> FoundChannels:
    """Without channels of KerasHub's models, whose configs do not count them."""
    reasons, left_out = why_not_held(model, found.groups), dict(found.left_out)
    for group in found.groups:
        if id(group) in reasons:
            makers = [layer for layer in group.makers if slides(layer)]
            left_out |= {layer.path: reasons[id(group)] for layer in makers}
    stay = [group for group in found.groups if id(group) not in reasons]
    return FoundChannels(stay, left_out, found.uses)
