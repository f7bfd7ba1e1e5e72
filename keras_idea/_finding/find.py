"""What can be pruned in a model, behind one kind of handle."""

import dataclasses
import weakref
from collections.abc import Sequence

import keras

from keras_idea._graph.configs import why_not_held
from keras_idea._graph.find import Graph, graph_of
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import CHANNELS, KINDS, KV_GROUPS, NEURONS, KindName
from keras_idea._keras.layers import walk
from keras_idea._validation import check_choice


def find_groups(
    model: keras.layers.Layer, kinds: Sequence[KindName] | None = None
) -> list[FFN]:
    """Finds everything in a model that can be pruned: neurons, heads and channels.

    Args:
        model: keras.layers.Layer. A built Keras model or layer, as in `find_ffns`.
        kinds: list of str. "neurons": see `find_ffns`. "kv_groups": key/value heads of
            any attention, each with the query heads that read it; in KerasHub's models
            only if the config holds the width of a head. "channels": of convolutions,
            each with all that makes, normalizes and reads it. Defaults to None: all.

    Returns:
        list of handles, each of one `kind`: first those of FFNs, then those of
        attention layers, then those of channels, in the model's own order.

    Raises:
        ValueError: If `model` is not a Keras layer, or for another kind.

    Example:
    >>> for group in find_groups(model):
    ...     print(group.kind, group.name, group.hidden_dim)
    neurons block_0/ffn_0 8
    neurons block_1/ffn_1 8
    kv_groups block_0/attention 2
    kv_groups block_1/attention 2
    """
    for kind in kinds or ():
        check_choice("kinds", kind, tuple(KINDS))
    groups, stated = counted(model)[0], graph_of(model).stated
    held = {id(ffn.layer) for ffn in stated}
    free = [g for g in groups if g.kind != NEURONS or id(g.layer) not in held]
    wanted = [kind for kind in KINDS if kinds is None or kind in kinds]
    return [g for kind in wanted for g in _listed(model, kind, [*stated, *free])]


def find_ffns(model: keras.layers.Layer) -> list[FFN]:
    """Finds every FFN in a model whose neurons can be pruned.

    The data is followed through the model, from each kernel that makes neurons to the
    kernels that read them: those of Dense and EinsumDense layers, of this package's
    FFNs, and a layer's own weights in `ops.matmul` and `ops.einsum`. In between, each
    operation must act on each neuron separately, or move neurons. In a model without
    `call`, each model in it is followed separately. For KerasHub's mixtures of experts,
    a table says where the FFNs are.

    Args:
        model: keras.layers.Layer. A built Keras model or layer: functional, Sequential,
            subclassed or from KerasHub. In a `Distiller`, the student is searched.

    Returns:
        list of `FFN` handles in the model's own order; empty if there is none.

    Raises:
        ValueError: If `model` is not a Keras layer.

    Example:
    >>> find_ffns(model)
    [<FFN block_0/ffn_0: 8 of 8 neurons>, <FFN block_1/ffn_1: 8 of 8 neurons>]
    """
    return find_groups(model, [NEURONS])


def all_heads(model: keras.layers.Layer) -> list[FFN]:
    """Finds heads, also those whose number a config holds only with the features."""
    return _listed(model, KV_GROUPS, graph_of(model).groups)


def _listed(
    model: keras.layers.Layer, kind: KindName, found: Sequence[FFN]
) -> list[FFN]:
    """Returns the groups of a kind, with their names, in the model's own order."""
    groups = [group for group in found if group.kind == kind]
    if kind != CHANNELS:
        places = {id(layer): place for place, layer in enumerate(walk(model))}
        groups.sort(key=lambda group: places[id(group.layer)])
    above = [group.layer.path.rpartition("/")[0] for group in groups if not group.name]

    def name_of(group: FFN) -> str:
        holder, _, _ = group.layer.path.rpartition("/")
        alone = kind == NEURONS and holder and above.count(holder) == 1
        return group.name or (holder if alone else group.layer.path)

    names = list(map(name_of, groups))
    return [
        dataclasses.replace(
            group,
            name=name if names.count(name) == 1 else f"{name}_{names[:i].count(name)}",
            place=i,
        )
        for i, (name, group) in enumerate(zip(names, groups, strict=True))
    ]


# By the graph of a model: the groups that configs can count, and why others not.
_COUNTED: weakref.WeakKeyDictionary[Graph, tuple[list[FFN], dict[str, str]]] = (
    weakref.WeakKeyDictionary()
)


def counted(model: keras.layers.Layer) -> tuple[list[FFN], dict[str, str]]:
    """Returns the groups of a model that can be pruned, and why other layers not."""
    graph = graph_of(model)
    if graph not in _COUNTED:
        groups = [group for group in graph.groups if group.kind in KINDS]
        why = why_not_held(model, groups)
        left_out = dict(graph.left_out)
        for group in groups:
            if id(group) in why:
                left = [group.layer] if group.kind == KV_GROUPS else group.makers
                left_out |= {layer.path: why[id(group)] for layer in left}
        stay = [group for group in groups if id(group) not in why]
        _COUNTED[graph] = stay, left_out
    return _COUNTED[graph]
