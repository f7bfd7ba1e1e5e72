"""The neurons of a model's Dense layers, found once, and counted by its configs."""

import weakref
from collections.abc import Callable

import keras

from keras_idea._groups.dense import DenseGroup, Found, find_dense_groups
from keras_idea._groups.follow import is_dense
from keras_idea._keras.around import layers_around
from keras_idea._keras.layers import stored_kernel, walk
from keras_idea.hub.families import is_backbone, is_task
from keras_idea.hub.ffn import known_ffns

# What was found in a model, and of which kernels it was.
_FOUND: weakref.WeakKeyDictionary[keras.layers.Layer, tuple[list, Found]] = (
    weakref.WeakKeyDictionary()
)


def dense_groups(model: keras.layers.Layer) -> Found[DenseGroup]:
    """As `find_dense_groups`; a model is followed once, as long as its layers stay."""
    layers = list(walk(model))
    dense = [layer for layer in layers if is_dense(layer) and layer.built]
    present: list = [
        (id(stored_kernel(layer)), layer.lora_enabled, layer.quantization_mode)
        for layer in dense
    ]
    present += [layer.built for layer in layers]
    known = _FOUND.get(model)
    if known is None or known[0] != present:
        found = _within_configs(model, find_dense_groups(model))
        known = _FOUND[model] = present, found
    return known[1]


def _within_configs(
    model: keras.layers.Layer, found: Found[DenseGroup]
) -> Found[DenseGroup]:
    """Without neurons of KerasHub's models that no config counts."""
    left_out, stay = dict(found.left_out), list(found.groups)
    held = [layer for group in found.groups for layer in group.layers]
    for holder in [*walk(model), *layers_around(model, held)]:
        if not is_task(holder) and not is_backbone(holder):
            continue
        counted = _counted(holder)
        for group in found.groups:
            layers = set(map(id, group.layers))
            if not layers.isdisjoint(map(id, walk(holder))) and not counted(layers):
                why = f"the config of {type(holder).__name__} does not hold its width"
                left_out |= {layer.path: why for layer in group.makers}
                stay = [other for other in stay if other is not group]
    return Found(stay, left_out)


def _counted(holder: keras.Model) -> Callable[[set[int]], bool]:
    """Whether layers, by their `id`s, make an FFN that the holder's config counts."""
    backbone = holder.backbone if is_task(holder) else holder
    known = [set(map(id, ffn.layers)) for ffn in known_ffns(backbone)]
    if known and not is_task(holder):
        return lambda layers: layers in known
    return set(map(id, walk(backbone))).issuperset
