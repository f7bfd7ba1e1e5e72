"""What can be pruned in a model, behind one kind of handle."""

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._finding.untraced import untraced_groups
from keras_idea._graph.configs import why_not_held
from keras_idea._graph.find import Graph, graph_of
from keras_idea._graph.group import Group as GraphGroup
from keras_idea._graph.layers import ATTENTION, name_of
from keras_idea._groups.cut import Cut, used_neurons
from keras_idea._groups.kinds import (
    CHANNELS,
    KINDS,
    KV_GROUPS,
    NEURONS,
    Group,
    KindName,
)
from keras_idea._groups.state import NeuronState, held_state, indices_of, state_of
from keras_idea._keras.around import layers_around
from keras_idea._keras.attention import numbers_of_heads
from keras_idea._keras.channels import dense_of
from keras_idea._keras.layers import stored_kernel, walk
from keras_idea._layers.ffn import FFNLayer, OwnGroup, Prunable
from keras_idea._typing import Tensor
from keras_idea._validation import check_choice
from keras_idea.functional.by_numbers import why_not_each_number
from keras_idea.hub.as_mistral import LLAMAS
from keras_idea.hub.families import is_backbone


@dataclasses.dataclass(frozen=True)
class FFN:
    """A handle for the neurons of one FFN, whatever layers hold them.

    If its kind is "kv_groups", it is a handle for the key/value heads of one attention
    layer, each with its query heads; if it is "channels", for channels of convolutions.
    What is said of neurons then applies to heads or channels.

    Attributes:
        name: str. The path of its layer. An FFN of Dense layers has the path of the
            layer that holds them, if that holds no other FFN. If several have one name,
            a number follows.
        layer: keras.layers.Layer. The layer that identifies it: an FFN of this package,
            the first of its Dense layers, the layer that holds the matrices of experts,
            the attention layer, or the first layer that makes the channels.
        weights: `keras_idea._groups.kinds.Group`. Where its units are in the weights.
            One `FFN` holds all experts of a mixture, each with the same number of
            active neurons. Its shapes have `experts, hidden_dim` in place of
            `hidden_dim`.
        place: int. Its place among the groups of its kind in the model.
    """

    name: str
    layer: keras.layers.Layer
    weights: Group
    place: int = 0

    @property
    def kind(self) -> KindName:
        """str, "neurons", "kv_groups" or "channels"."""
        return self.weights.kind

    @property
    def units(self) -> str:
        """str, what several of its units are called: "neurons"."""
        return KINDS[self.kind].units

    @property
    def layers(self) -> Sequence[keras.layers.Layer]:
        """List of the layers that hold the weights of the neurons."""
        return self.weights.layers

    @property
    def state(self) -> NeuronState:
        """`NeuronState`, its scores and mask."""
        if self.holds_state:
            return self.layer.state
        cuts = self.cuts()
        by_unit = self.kind == CHANNELS or any(cut.scattered for cut in cuts)
        return state_of(self.layer, cuts, by_unit)

    @property
    def held_state(self) -> NeuronState | None:
        """Its `NeuronState`, or None if there is none yet."""
        return self.layer.state if self.holds_state else held_state(self.layer)

    @property
    def holds_state(self) -> bool:
        """bool, whether its layer has the scores and the mask among its variables."""
        return isinstance(self.layer, Prunable)

    @property
    def built(self) -> bool:
        """bool, whether its layers have their variables."""
        return self.layer.built

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels hold, active or pruned."""
        return self.weights.hidden_dim

    @property
    def full_dim(self) -> int:
        """int, neurons that it had before any narrowing that is known.

        A file of stock layers holds their present width alone.
        """
        return (self.built and self.state.full_dim) or self.hidden_dim

    @property
    def original_indices(self) -> np.ndarray:
        """Array of int, the index that each neuron had at first."""
        if not self.built:
            return np.arange(self.hidden_dim)
        index = keras.ops.convert_to_numpy(self.state.original_index)
        return index.astype("int64")

    def by_original_index(self, values: np.ndarray) -> np.ndarray:
        """Puts one value per neuron at the index that the neuron had at first.

        Args:
            values: float array. One value per neuron, in the shape of the mask.

        Returns:
            float array of the full width, NaN for each neuron that was removed.
        """
        index = self.original_indices
        every = np.full((*index.shape[:-1], self.full_dim), np.nan, values.dtype)
        np.put_along_axis(every, index, values, axis=-1)
        return every

    @property
    def width(self) -> int:
        """int, active neurons."""
        return self.kept_neurons().shape[-1] if self.built else self.hidden_dim

    @property
    def kernels(self) -> tuple[keras.Variable, ...]:
        """The variables up, gate (if it has its own) and down."""
        return tuple(cut.variable for cut in self.kernel_cuts())

    @property
    def units_shape(self) -> tuple[int, ...]:
        """Tuple of int, the shape of its mask: experts, if it has any, and units."""
        cut = self.kernel_cuts()[0]
        experts = () if cut.group is None else (cut.variable.shape[cut.group],)
        return (*experts, self.hidden_dim)

    @property
    def device_parts(self) -> int:
        """int, equal parts into which devices split its neurons; 1 if they do not."""
        parts = 1
        for cut in self.kernel_cuts():
            sharding = getattr(cut.variable.value, "sharding", None)  # of jax's arrays
            if sharding is not None:
                shape, axis = tuple(cut.variable.shape), cut.axis
                parts = max(parts, shape[axis] // sharding.shard_shape(shape)[axis])
        return parts

    @property
    def mask(self) -> keras.Variable:
        """Variable `(hidden_dim,)`, float32 in {0, 1}: 1 for an active neuron.

        While nobody prunes, this is a new variable: 1 if the neuron has a weight other
        than zero.
        """
        if self._is_pruned:
            return self.state.mask
        used = used_neurons(self._own_cuts())
        return keras.Variable(used, trainable=False, dtype="float32", name="mask")

    @property
    def scores(self) -> keras.Variable:
        """Variable `(M, hidden_dim)` or `(M, hidden_dim, input_dim)` for M kernels."""
        return self.state.scores

    def importance(self) -> Tensor:
        """Importance `(hidden_dim,)` of the neurons, from the present scores."""
        return self.state.importance()

    def kept_neurons(self) -> np.ndarray:
        """Ascending indices of the active neurons, `(width,)` or `(experts, width)`."""
        mask = self.state.mask if self._is_pruned else used_neurons(self._own_cuts())
        return indices_of(mask, self.name)

    @property
    def _is_pruned(self) -> bool:
        """bool, whether a pruner is at work; else its weights show the mask."""
        state = self.held_state
        return state is not None and state.active_track is not None

    def update_state(self) -> None:
        """Updates the mask and scores of its state, so that they can be saved."""
        if not self._is_pruned:
            self.state.set_mask(used_neurons(self._own_cuts()))
        self.state.publish()

    def kernel_cuts(self) -> list[Cut]:
        """Where its neurons are in the kernels."""
        return [cut for cut in self.cuts() if not cut.is_bias]

    def scored_cuts(self) -> list[Cut]:
        """Where they are in the kernels that rank them: of channels, the readers'."""
        return self._own_cuts() if KINDS[self.kind].by_readers else self.kernel_cuts()

    def outgoing_cuts(self) -> list[Cut]:
        """Where its neurons are in the kernels that read them."""
        if KINDS[self.kind].by_readers:
            return self._own_cuts()
        cuts = self.kernel_cuts()
        dense = filter(None, map(dense_of, self.weights.readers))
        readers = {id(stored_kernel(layer)) for layer in dense}
        return [cut for cut in cuts if id(cut.variable) in readers] or cuts[-1:]

    def cuts(self) -> list[Cut]:
        """Where its neurons are in the weights, the kernels first.

        These are zero for a pruned neuron. Frozen variables other than kernels are not
        included: pruning does not change them.
        """
        return _not_frozen(self.weights.cuts())

    def held_cuts(self) -> list[Cut]:
        """Where its neurons are in all variables of its layers: what narrowing slices.

        Also in what stays as it is if they are pruned: moving means, frozen biases.
        """
        return self.weights.held_cuts()

    def _own_cuts(self) -> list[Cut]:
        """Where its neurons are in the weights whose zeros say that one is pruned."""
        return _not_frozen(self.weights.own_cuts())

    def cuts_with_gradients(self) -> list[Cut]:
        """The cuts in which neurons of zeros may have gradients other than zero.

        If nothing is compiled, zeroing gradients is slow, so other cuts are omitted.
        """
        if keras.backend.backend() != "torch" or not self._is_quiet:
            return self.cuts()
        return [cut for cut in self.cuts() if cut.variable.regularizer is not None]

    @property
    def _is_quiet(self) -> bool:
        """bool, whether the hidden activation of a neuron of zeros is 0."""
        if any(layer.activity_regularizer is not None for layer in self.layers):
            return False
        if len(self.cuts()) < len(self.weights.cuts()):  # a frozen bias is added
            return False
        return self.weights.preserves_zero


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
    wanted = [kind for kind in KINDS if kinds is None or kind in kinds]
    return [group for kind in wanted for group in FINDERS[kind](model)]


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
    >>> for ffn in find_ffns(model):
    ...     print(ffn.name, ffn.width, "of", ffn.hidden_dim)
    block_0/ffn_0 8 of 8
    block_1/ffn_1 8 of 8
    """
    layers = list(walk(model))
    held: dict[int, tuple[keras.layers.Layer, Any, str]] = {}
    for layer in layers:
        if isinstance(layer, FFNLayer):
            if why_not_ours(layer) is None:
                name = layer.path or layer.name
                held[id(layer)] = (layer, OwnGroup(layer), name)
        elif is_backbone(layer):
            for owner, known in untraced_groups(layer):
                key = known.layers[0]
                held[id(key)] = (key, known, owner.path)
    groups = [g for g in _of_kind(model, NEURONS) if id(g.owner) not in held]
    for group, name in zip(groups, _names(groups), strict=True):
        held.setdefault(id(group.owner), (group.owner, group, name))
    places = {id(layer): place for place, layer in reversed(list(enumerate(layers)))}
    found = [held[key] for key in sorted(held, key=places.__getitem__)]
    paths = [name for *_, name in found]
    return [
        FFN(
            name if paths.count(name) == 1 else f"{name}_{paths[:i].count(name)}",
            layer,
            weights,
            i,
        )
        for i, (layer, weights, name) in enumerate(found)
    ]


def why_not_ours(layer: keras.layers.Layer) -> str | None:
    """Why the neurons of an FFN of this package cannot be pruned; None: they can."""
    shape = 2, layer.hidden_dim
    plain = isinstance(layer, FFNLayer) and not isinstance(layer, Prunable)
    why_not = plain and why_not_each_number(layer.activation, shape)
    return f"its activation {name_of(layer.activation)} {why_not}" if why_not else None


def _not_frozen(cuts: Sequence[Cut]) -> list[Cut]:
    return [cut for cut in cuts if cut.variable.trainable or not cut.is_bias]


def _names(groups: list[GraphGroup]) -> list[str]:
    """The path of what holds a group's layers, where that holds no other's."""
    holders = [group.owner.path.rpartition("/")[0] for group in groups]
    return [
        holder if holder and holders.count(holder) == 1 else group.owner.path
        for holder, group in zip(holders, groups, strict=True)
    ]


# By the graph of a model: the groups that configs can count, and why others not.
_COUNTED: weakref.WeakKeyDictionary[Graph, tuple[list, dict[str, str]]] = (
    weakref.WeakKeyDictionary()
)


def counted(model: keras.layers.Layer) -> tuple[list[GraphGroup], dict[str, str]]:
    """Returns the groups of a model that can be pruned, and why other layers not."""
    graph = graph_of(model)
    if graph not in _COUNTED:
        kinds = [group for group in graph.groups if group.kind in KINDS]
        for group in kinds:
            if isinstance(group.owner, ATTENTION):
                queries, keys = numbers_of_heads(group.owner)
                units, dim = group.hidden_dim, group.makers[1].partial_output_shape[-1]
                group.heads = queries // units, keys // units, dim
        why = _without_widths(model, kinds)
        asked = [group for group in kinds if id(group) not in why]
        why |= why_not_held(model, asked)
        left_out = dict(graph.left_out)
        for group in kinds:
            if id(group) in why:
                left = [group.owner] if group.kind == KV_GROUPS else group.makers
                left_out |= {layer.path: why[id(group)] for layer in left}
        stay = [group for group in kinds if id(group) not in why]
        _COUNTED[graph] = stay, left_out
    return _COUNTED[graph]


def _without_widths(
    model: keras.layers.Layer, groups: Sequence[GraphGroup]
) -> dict[int, str]:
    """Returns reasons of heads in KerasHub models whose config has no width of one."""
    held = [layer for group in groups for layer in group.layers]
    every = [p for part in (model, *layers_around(model, held)) for p in walk(part)]
    why: dict[int, str] = {}
    for backbone in filter(is_backbone, every):
        inside, name = set(map(id, walk(backbone))), type(backbone).__name__
        if not any("head_dim" in key for key in backbone.get_config()):
            reason = f"it lies in a {name}, whose config cannot say how wide a head is"
            if name in LLAMAS:
                reason += "; `keras_idea.hub.as_mistral` makes one that can"
            ours = [g for g in groups if not inside.isdisjoint(map(id, g.layers))]
            why |= {id(group): reason for group in ours if group.kind == KV_GROUPS}
    return why


def _of_kind(model: keras.layers.Layer, kind: KindName) -> list[GraphGroup]:
    return [group for group in counted(model)[0] if group.kind == kind]


def _heads(model: keras.layers.Layer) -> list[FFN]:
    return _of_heads(model, _of_kind(model, KV_GROUPS))


def all_heads(model: keras.layers.Layer) -> list[FFN]:
    """Finds heads, also those whose number a config holds only with the features."""
    counted(model)  # which notes the numbers of heads
    groups = [group for group in graph_of(model).groups if group.kind == KV_GROUPS]
    return _of_heads(model, groups)


def _of_heads(model: keras.layers.Layer, groups: Sequence[GraphGroup]) -> list[FFN]:
    layers = list(map(id, walk(model)))
    groups = sorted(groups, key=lambda group: layers.index(id(group.owner)))
    return [FFN(g.owner.path, g.owner, g, i) for i, g in enumerate(groups)]


def _channels(model: keras.layers.Layer) -> list[FFN]:
    groups = _of_kind(model, CHANNELS)
    return [FFN(g.owner.path, g.owner, g, i) for i, g in enumerate(groups)]


#: Kind -> the function that finds its groups in a model, in the model's own order.
FINDERS: dict[KindName, Callable[[keras.layers.Layer], list[FFN]]] = {
    NEURONS: find_ffns,
    KV_GROUPS: _heads,
    CHANNELS: _channels,
}
