"""KerasHub's backbones hold one number for all their blocks: others are refused."""

from collections.abc import Mapping

import keras

from keras_idea._finding.find import find_groups
from keras_idea._groups.kinds import KV_GROUPS
from keras_idea.errors import ArgumentError
from keras_idea.hub.ffn import known_ffns


def check_one_width(backbone: keras.Model, widths: Mapping[int, int]) -> None:
    """Refuses widths of FFNs that a backbone's config cannot hold.

    By the `id` of an FFN's first layer, the neurons it is to have; others stay.
    """
    by_argument: dict[str, dict[str, int]] = {}
    for ffn in known_ffns(backbone):
        width = widths.get(id(ffn.layers[0]), ffn.hidden_dim) * ffn.layout.per_neuron
        by_argument.setdefault(ffn.width_argument, {})[ffn.owner.path] = width
    for argument, of_layers in by_argument.items():
        if len(set(of_layers.values())) > 1:
            raise ArgumentError(
                f"The config of {type(backbone).__name__} holds one {argument}, but "
                f"its FFNs now need {of_layers}. Prune every FFN to the same number "
                "of neurons."
            )


def check_one_count(model: keras.layers.Layer, kept: Mapping[int, int]) -> None:
    """Refuses numbers of heads that the config of a KerasHub backbone cannot hold.

    By the `id` of an attention layer, the heads it is to have; of others they stay.
    """
    by_argument: dict[tuple[int, str], dict[str, int]] = {}
    for group in (handle.weights for handle in find_groups(model, [KV_GROUPS])):
        arguments = group.arguments
        if arguments is not None:
            key = id(arguments.backbone), arguments.key_value_heads
            heads = kept.get(id(group.owner), group.hidden_dim)
            by_argument.setdefault(key, {})[group.owner.path] = heads
    for (_, argument), of_layers in by_argument.items():
        if len(set(of_layers.values())) > 1:
            raise ArgumentError(
                f"The config of a KerasHub backbone holds one {argument}, but its "
                f"attention layers now need {of_layers}. Prune each to the same "
                "number of key/value heads."
            )
