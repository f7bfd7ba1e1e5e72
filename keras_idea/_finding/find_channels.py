"""The channels of a model's convolutions, found once."""

import weakref

import keras

from keras_idea._groups.find_channels import (
    FoundChannels,
    find_channel_groups,
    slides,
)
from keras_idea._keras.around import layers_around
from keras_idea._keras.layers import is_built, student_of, walk
from keras_idea.hub.families import is_backbone, is_task

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
    """Without channels of KerasHub's models, whose configs do not count them.

    Nor do presets. Of what a backbone and its task hold, the backbone is named.
    """
    groups, left_out = found.groups, dict(found.left_out)
    held = [layer for group in groups for layer in group.layers]
    around = layers_around(model, held)
    every = [part for layer in (model, *around) for part in walk(layer)]
    for holder in [*filter(is_backbone, every), *filter(is_task, every)]:
        inside = set(map(id, walk(holder)))
        why = (
            f"the config of {type(holder).__name__} does not hold its number, so no "
            "preset could; prune keras_idea.as_functional(model)"
        )
        for group in groups:
            if not inside.isdisjoint(map(id, group.layers)):
                makers = [layer for layer in group.makers if slides(layer)]
                left_out |= {layer.path: why for layer in makers}
        groups = [g for g in groups if inside.isdisjoint(map(id, g.layers))]
    return FoundChannels(groups, left_out, found.uses)
