"""The neurons of a model's Dense layers, found once, and counted by its configs."""

import weakref

import keras

from keras_idea._graph.configs import config_holds
from keras_idea._groups.dense import DenseGroup, Found, find_dense_groups
from keras_idea._groups.follow import is_dense
from keras_idea._keras.layers import stored_kernel, walk

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
    left_out, stay = dict(found.left_out), []
    reasons = config_holds(model, found.groups)
    for group in found.groups:
        if why := reasons.get(id(group)):
            left_out |= {layer.path: why for layer in group.makers}
        else:
            stay.append(group)
    return Found(stay, left_out)
