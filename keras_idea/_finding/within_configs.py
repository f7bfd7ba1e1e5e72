"""Which groups the configs of KerasHub's models can count."""

import collections
from collections.abc import Callable, Sequence

import keras

from keras_idea._graph.group import Group, HeadArguments
from keras_idea._graph.layers import ATTENTION
from keras_idea._groups.kinds import CHANNELS, KV_GROUPS, NEURONS
from keras_idea._keras.around import layers_around
from keras_idea._keras.attention import numbers_of_heads, projections_of
from keras_idea._keras.layers import sublayers, walk
from keras_idea.hub.as_mistral import LLAMAS
from keras_idea.hub.families import (
    HEAD_ARGUMENTS,
    STACKED_HEAD_ARGUMENTS,
    is_backbone,
    is_task,
)
from keras_idea.hub.ffn import known_ffns

_HELD_BY_HUB = "whose config cannot say how wide a head is"


def why_not_counted(
    model: keras.layers.Layer, groups: Sequence[Group]
) -> dict[int, str]:
    """Returns, by the `id` of a group, why no config could hold its new width."""
    why: dict[int, str] = {}
    held = [layer for group in groups for layer in group.layers]
    every = [part for l in (model, *layers_around(model, held)) for part in walk(l)]
    for holder in [*filter(is_backbone, every), *filter(is_task, every)]:
        name = type(holder).__name__
        inside = set(map(id, walk(holder)))
        counted = _counted(holder)
        for group in groups:
            if inside.isdisjoint(map(id, group.layers)):
                continue
            if group.kind == CHANNELS:
                reason = (
                    f"the config of {name} does not hold its number, so no preset "
                    "could; prune keras_idea.as_functional(model)"
                )
                why.setdefault(id(group), reason)
            elif group.kind == NEURONS and not counted(group):
                reason = f"the config of {name} does not hold its width"
                why.setdefault(id(group), reason)
    return why | _heads(model, [g for g in groups if g.kind == KV_GROUPS])


def _counted(holder: keras.Model) -> Callable[[Group], bool]:
    """Returns whether a group is an FFN that the holder's config counts."""
    backbone = holder.backbone if is_task(holder) else holder
    known = [set(map(id, ffn.layers)) for ffn in known_ffns(backbone)]
    if known and not is_task(holder):
        return lambda group: set(map(id, [*group.makers, *group.readers])) in known
    inside = set(map(id, walk(backbone)))
    return lambda group: set(map(id, group.layers)) <= inside


def _heads(model: keras.layers.Layer, groups: Sequence[Group]) -> dict[int, str]:
    why: dict[int, str] = {}
    layers = list(walk(model))
    around = collections.defaultdict(list)
    for layer in layers:
        if _of_hub(layer) and not is_backbone(layer):
            for part in sublayers(layer):
                around[id(part)].append(layer)
    hub = {id(p) for layer in layers if _of_hub(layer) for p in walk(layer)}
    stacks = []
    for backbone in [layer for layer in layers if is_backbone(layer)]:
        name = type(backbone).__name__
        table = STACKED_HEAD_ARGUMENTS.get(name, {"": HEAD_ARGUMENTS.get(name)})
        for stack, names in table.items():
            blocks = getattr(backbone, stack) if stack else [backbone]
            inside = {id(p) for block in blocks for p in walk(block)}
            stacks.append((backbone, names, inside))
    for group in groups:
        owner = group.owner
        if projections_of(owner) is not None:
            queries, keys = numbers_of_heads(owner)
            units = group.hidden_dim
            key = projections_of(owner).key
            apart = isinstance(key, keras.layers.EinsumDense)
            dim = key.partial_output_shape[-1] if apart else owner.head_dim
            group.heads = queries // units, keys // units, dim
            group.holders = [owner, *around[id(owner)]]
        if id(owner) not in hub:
            continue
        for backbone, names, inside in stacks:
            if id(owner) in inside:
                if names is not None and projections_of(owner) is not None:
                    group.arguments = HeadArguments(backbone, *names)
                    break
                name = type(backbone).__name__
                why[id(group)] = f"it lies in a {name}, {_HELD_BY_HUB}"
                if name in LLAMAS:
                    why[id(group)] += "; `keras_idea.hub.as_mistral` makes one that can"
                break
        else:
            if not isinstance(owner, ATTENTION) or not _of_hub(owner):
                why[id(group)] = f"it lies in a layer of KerasHub's, {_HELD_BY_HUB}"
        by_count = type(owner).__name__ in (
            "CachedGemmaAttention",
            "CachedGemma3Attention",
        )
        if by_count and not owner.query_head_dim_normalize:
            why[id(group)] = "it divides its queries by a number of how many they are"
        if getattr(owner, "num_global_key_value_heads", None):
            why[id(group)] = "its backbone has layers with other numbers of heads"
    return why


def _of_hub(layer: keras.layers.Layer) -> bool:
    return type(layer).__module__.startswith("keras_hub.")
