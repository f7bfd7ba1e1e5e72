"""The heads of a model's attention layers that can be pruned, or why they cannot."""

import collections
from collections.abc import Mapping

import keras

from keras_idea._groups.attention import AttentionGroup
from keras_idea._groups.dense import Found
from keras_idea._groups.dense_reasons import why_not_plain
from keras_idea._keras.attention import numbers_of_heads, projections_of
from keras_idea._keras.layers import stored_kernel, student_of, sublayers, walk
from keras_idea.hub.as_mistral import LLAMAS
from keras_idea.hub.families import HEADS, is_backbone

#: Attention layers that are found wherever they are; KerasHub's by their backbone.
ATTENTION_LAYERS = (
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
)
_HELD_BY_HUB = "whose config cannot say how wide a head is"


def find_heads(model: keras.layers.Layer) -> Found[AttentionGroup]:
    """Finds the heads of a model (of a `Distiller` its student) that can be cut out.

    Those of Keras's `MultiHeadAttention` and `GroupQueryAttention`, and of KerasHub's
    families whose config sets the width of a head.
    """
    layers = list(walk(student_of(model)))
    # For each layer, the KerasHub layers that hold it directly.
    holders: dict[int, list[keras.layers.Layer]] = collections.defaultdict(list)
    for layer in layers:
        if _of_hub(layer) and not is_backbone(layer):
            for sublayer in sublayers(layer):
                holders[id(sublayer)].append(layer)
    groups: list[AttentionGroup] = []
    left_out: dict[str, str] = {}
    for backbone in [layer for layer in layers if is_backbone(layer)]:
        found, why = _of_backbone(backbone, holders)
        groups += found
        left_out |= why
    hub = {id(p) for layer in layers if _of_hub(layer) for p in walk(layer)}
    for layer in layers:
        if (
            not isinstance(layer, ATTENTION_LAYERS)
            or not layer.built
            or layer.path in left_out
            or (id(layer) in hub and type(layer) not in ATTENTION_LAYERS)
        ):
            continue
        why_not = _why_not(layer)
        if type(layer) not in ATTENTION_LAYERS:
            known = next(k for k in ATTENTION_LAYERS if isinstance(layer, k)).__name__
            why_not = f"it is a {type(layer).__name__}, a class made from {known}"
        elif id(layer) in hub:
            why_not = f"it lies in a layer of KerasHub's, {_HELD_BY_HUB}"
        if why_not is None:
            groups.append(_group(layer, holders[id(layer)]))
        else:
            left_out[layer.path] = why_not
    places = {id(layer): place for place, layer in reversed(list(enumerate(layers)))}
    groups.sort(key=lambda group: places[id(group.owner)])
    return Found(groups, left_out)


def _of_hub(layer: keras.layers.Layer) -> bool:
    return type(layer).__module__.startswith("keras_hub.")


def _of_backbone(
    backbone: keras.Model, holders: Mapping[int, list[keras.layers.Layer]]
) -> tuple[list[AttentionGroup], dict[str, str]]:
    """The heads of a KerasHub backbone: all, or none."""
    name = type(backbone).__name__
    layers = [
        part
        for part in walk(backbone)
        if part.built and projections_of(part) is not None
    ]
    if name not in HEADS:
        why = f"it lies in a {name}, {_HELD_BY_HUB}"
        if name in LLAMAS:
            why += "; `keras_idea.hub.as_mistral` makes one that can"
        return [], {layer.path: why for layer in layers}
    found = [(layer.path, _why_not(layer)) for layer in layers]
    reasons = {path: reason for path, reason in found if reason is not None}
    if reasons:
        first = next(iter(reasons.values()))
        return [], {layer.path: reasons.get(layer.path, first) for layer in layers}
    return [_group(layer, holders[id(layer)]) for layer in layers], {}


def _why_not(layer: keras.layers.Layer) -> str | None:
    """Why the heads of an attention layer cannot be pruned; None if they can."""
    by_count = type(layer).__name__ in ("CachedGemmaAttention", "CachedGemma3Attention")
    if by_count and not layer.query_head_dim_normalize:
        return "it divides its queries by a number that depends on how many they are"
    if getattr(layer, "num_global_key_value_heads", None):
        return "its backbone has layers with other numbers of key/value heads"
    parts = projections_of(layer)
    if parts is None or parts.key is None or parts.value is None:
        return "another layer makes its keys or values"
    projections = [part for part in parts if part is not None]
    for each in projections:
        if type(each) not in (keras.layers.Dense, keras.layers.EinsumDense):
            return f"its projection '{each.path}' is a {type(each).__name__}"
        why = why_not_plain(each)
        if why is not None:
            return why
    kernels = [id(stored_kernel(each)) for each in projections]
    if len(set(kernels)) < len(kernels):
        return "its projections share a kernel"
    return None


def _group(
    layer: keras.layers.Layer, holders: list[keras.layers.Layer]
) -> AttentionGroup:
    parts = projections_of(layer)
    assert parts is not None  # else `_why_not` has said so
    queries, keys = numbers_of_heads(layer)
    gates = [] if parts.gate is None else [parts.gate]
    heads_apart = isinstance(parts.query, keras.layers.EinsumDense)
    return AttentionGroup(
        owner=layer,
        makers=[parts.query, parts.key, parts.value, *gates],
        reader=parts.output,
        query_heads=queries // keys,
        width=1 if heads_apart else layer.head_dim,
        sinks=getattr(layer, "sinks", None),
        holders=holders,
    )
