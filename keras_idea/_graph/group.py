"""Groups: units that lie equally often in the same variables, and are pruned apart.

The entries of each axis are numbered by the unit to which they belong. What a
`Concatenate` puts behind one another is several groups along one axis, what an `Add`
sums is one group of many layers, and a head has several entries. Narrowing one group
moves the others' entries.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._graph.layers import ATTENTION
from keras_idea._groups.cut import Axis, Cut, Role, places_of, used_neurons
from keras_idea._groups.kinds import CHANNELS, KINDS, NEURONS, KindName
from keras_idea._groups.state import NeuronState, held_state, indices_of, state_of
from keras_idea._keras.attention import tell_heads
from keras_idea._keras.channels import SEPARABLE, dense_of, tell, tell_size
from keras_idea._layers.ffn import FFNLayer, Prunable
from keras_idea._typing import Tensor

_KERNELS: tuple[Role, ...] = ("makes", "each", "reads")
#: In this order a group's layers are listed.
_ROLES: tuple[Role, ...] = (*_KERNELS, "own", "statistic")


@dataclasses.dataclass(frozen=True, eq=False)
class Sized:
    """A Reshape, or what takes a tensor, that knows how many units there are.

    `labels`: the unit of each entry along `axis`, -1 the last, before any narrowing.
    """

    layer: Any
    axis: int
    labels: np.ndarray


class Axes:
    """All axes with units in a model, and what else knows their number."""

    def __init__(self, axes: Sequence[Axis], sized: Sequence[Sized] = ()) -> None:
        self.axes, self.sized = axes, sized

    @property
    def are_current(self) -> bool:
        """bool, whether all narrowing is known."""
        return all(
            axis.variable.shape[axis.axis] == len(axis.labels) for axis in self.axes
        )

    def tell(self, layers: Sequence[keras.layers.Layer]) -> None:
        """Has layers, and all of `sized`, say how many units there are now."""
        for layer in layers:
            tell(layer)
        if self.sized:
            left = np.concatenate([axis.labels for axis in self.axes])
            for each in self.sized:
                size = np.isin(each.labels, left).sum()
                tell_size(each.layer, each.axis, int(size))


@dataclasses.dataclass(eq=False)
class FFN:
    """A handle for the neurons of one FFN, whatever layers hold them.

    If its kind is "kv_groups", it is a handle for the key/value heads of one attention
    layer, each with its query heads; if it is "channels", for channels of convolutions.
    What is said of neurons then applies to heads or channels.

    Attributes:
        kind: str. "neurons", "kv_groups" or "channels".
        axes: list of `Axis`, of each role in the order of the scores.
        labels: int array. The numbers of its units along these before any narrowing.
        whole: `Axes` of the model.
        layer: keras.layers.Layer. The layer that identifies it: an FFN of this package,
            the first of its Dense layers, the layer that holds the matrices of experts,
            the attention layer, or the first layer that makes the channels. One `FFN`
            holds all experts of a mixture, each with the same number of active neurons.
            Its shapes have `experts, hidden_dim` in place of `hidden_dim`.
        preserves_zero: bool. Whether what reads a unit of zeros gets zeros.
        shown: bool. Whether the reader is called on the units by the model itself.
        name: str. The path of its layer. An FFN of Dense layers has the path of the
            layer that holds them, if that holds no other FFN. If several have one name,
            a number follows.
        place: int. Its place among the groups of its kind in the model.
    """

    kind: KindName
    axes: Sequence[Axis]
    labels: np.ndarray
    whole: Axes
    layer: Any
    preserves_zero: bool = False
    shown: bool = True
    name: str = ""
    place: int = 0

    def __post_init__(self) -> None:
        self._cuts: list[Cut] = []
        self._cuts_of: list[np.ndarray] = []

    def __repr__(self) -> str:
        return f"<FFN {self.name}: {self.width} of {self.hidden_dim} {self.units}>"

    def _by_role(self, *roles: Role) -> list[Cut]:
        labels = [axis.labels for axis in self.axes]
        if list(map(id, labels)) != list(map(id, self._cuts_of)):
            self._cuts = [axis.cut(self._left) for axis in self.axes]
            self._cuts_of = labels
        pairs = list(zip(self.axes, self._cuts, strict=True))
        return [cut for role in roles for axis, cut in pairs if axis.role == role]

    @property
    def _left(self) -> np.ndarray:
        """The labels of the units that narrowing has left."""
        return self.labels[np.isin(self.labels, self.axes[0].labels)]

    def _layers_of(self, *roles: Role) -> list[keras.layers.Layer]:
        found = [
            layer
            for role in roles
            for axis in self.axes
            if axis.role == role
            for layer in axis.layers
        ]
        return list({id(layer): layer for layer in found}.values())

    @property
    def units(self) -> str:
        """str, what several of its units are called: "neurons"."""
        return KINDS[self.kind].units

    @property
    def layers(self) -> list[keras.layers.Layer]:
        """List of the layers that hold the weights of the neurons, the makers first."""
        return self._layers_of(*_ROLES)

    @property
    def makers(self) -> list[keras.layers.Layer]:
        """List of the layers whose kernels make the units, or act on each."""
        return self._layers_of("makes", "each")

    @property
    def readers(self) -> list[keras.layers.Layer]:
        """List of a layer for each kernel that reads them."""
        found = [axis.layer for axis in self.axes if axis.role == "reads"]
        return [layer for layer in found if layer is not None]

    @property
    def shown_by(self) -> keras.layers.Layer | None:
        """The one layer that is called on the neurons, one after another, or None.

        An FFN of this package, in which they are; a layer of another class of its own
        may be called on anything else.
        """
        cuts = self.outgoing_cuts()
        if self.kind != NEURONS or not self.shown or len(cuts) > 1 or not self.readers:
            return None
        reader = self.readers[0]
        known = dense_of(reader) is reader or isinstance(reader, FFNLayer)
        return reader if cuts[0].is_plain and known else None

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias that is added to what the units become, or None."""
        if self.kind == CHANNELS or not self.readers:
            return None
        ours = isinstance(self.readers[0], FFNLayer)
        name = "down_bias" if ours else "bias"
        bias: keras.Variable | None = getattr(self.readers[0], name, None)
        return bias

    def read_places(self) -> list[tuple[keras.layers.Layer, np.ndarray]]:
        """List of (layer that reads them, where they are in what it is called on).

        The places are int arrays `(units, entries of a unit)` along its last axis, or
        its channels'.
        """
        return [
            (axis.layer, places_of(_input_labels(axis, self.whole.axes), self._left))
            for axis in self.axes
            if axis.role == "reads"
        ]

    def tell(self) -> None:
        """Has its layers say which shapes their variables have now."""
        self.whole.tell(self.layers)
        if isinstance(self.layer, ATTENTION):
            tell_heads(self.layer)

    @property
    def holds_state(self) -> bool:
        """bool, whether its layer has the scores and the mask among its variables."""
        return isinstance(self.layer, Prunable)

    @property
    def held_state(self) -> NeuronState | None:
        """Its `NeuronState`, or None if there is none yet."""
        return self.layer.state if self.holds_state else held_state(self.layer)

    @property
    def state(self) -> NeuronState:
        """`NeuronState`, its scores and mask."""
        if self.holds_state:
            state: NeuronState = self.layer.state
            return state
        cuts = self.cuts()
        by_unit = len(self.units_shape) > 1 or self.kind == CHANNELS
        by_unit |= not all(cut.in_order for cut in cuts)
        return state_of(self.layer, self.kernel_cuts(), by_unit)

    @property
    def hidden_dim(self) -> int:
        """int, neurons that the kernels hold, active or pruned."""
        return len(self._left)

    @property
    def full_dim(self) -> int:
        """int, neurons that it had before any narrowing that is known.

        A file of stock layers holds their present width alone.
        """
        return self.state.full_dim or self.hidden_dim

    @property
    def original_indices(self) -> np.ndarray:
        """Array of int, the index that each neuron had at first."""
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
        return self.kept_neurons().shape[-1]

    @property
    def kernels(self) -> tuple[keras.Variable, ...]:
        """The variables up, gate (if it has its own) and down."""
        return tuple(cut.variable for cut in self.kernel_cuts())

    @property
    def units_shape(self) -> tuple[int, ...]:
        """Tuple of int, the shape of its mask: experts, if it has any, and units."""
        return self.kernel_cuts()[0].units_shape

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
        used = self._used()
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
        mask = self.state.mask if self._is_pruned else self._used()
        return indices_of(mask, self.name)

    @property
    def _is_pruned(self) -> bool:
        """bool, whether a pruner is at work; else its weights show the mask."""
        state = self.held_state
        return state is not None and state.active_track is not None

    def update_state(self) -> None:
        """Updates the mask and scores of its state, so that they can be saved."""
        if not self._is_pruned:
            self.state.set_mask(self._used())
        self.state.publish()

    def _used(self) -> Tensor:
        """The mask that the weights show: of channels the kernels that read them.

        A normalization may make anything of zeros. Frozen biases are not asked.
        """
        if self.kind == CHANNELS:
            return used_neurons(self.outgoing_cuts())
        makers = set(map(id, self.makers))
        others = {
            id(axis.variable)
            for axis in self.axes
            if axis.role == "own" and id(axis.layer) not in makers
        }
        cuts = self.cuts()
        return used_neurons([cut for cut in cuts if id(cut.variable) not in others])

    def kernel_cuts(self) -> list[Cut]:
        """Where its neurons are in the kernels."""
        return self._by_role(*_KERNELS)

    def outgoing_cuts(self) -> list[Cut]:
        """Where its neurons are in the kernels that read them."""
        return self._by_role("reads")

    def scored_cuts(self) -> list[Cut]:
        """Where they are in the kernels that rank them: of channels, the readers'."""
        by_readers = KINDS[self.kind].by_readers
        return self.outgoing_cuts() if by_readers else self.kernel_cuts()

    def cuts(self) -> list[Cut]:
        """Where its neurons are in the weights, the kernels first.

        These are zero for a pruned neuron. Frozen variables other than kernels are not
        included: pruning does not change them.
        """
        own = [cut for cut in self._by_role("own") if cut.variable.trainable]
        return [*self.kernel_cuts(), *own]

    def held_cuts(self) -> list[Cut]:
        """Where its neurons are in all variables of its layers: what narrowing slices.

        Also in what stays as it is if they are pruned: moving means, frozen biases.
        """
        return self._by_role(*_ROLES)

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
        regularized = any(x.activity_regularizer is not None for x in self.layers)
        frozen = any(not cut.variable.trainable for cut in self._by_role("own"))
        return self.preserves_zero and not regularized and not frozen


def _input_labels(axis: Axis, every: Sequence[Axis]) -> np.ndarray:
    """Returns the unit of each entry of what a layer that reads units is called on."""
    if type(axis.layer) in SEPARABLE:  # its other kernel is called on the input
        return next(
            other.labels
            for other in every
            if other.layer is axis.layer and other.role == "each"
        )
    groups = getattr(axis.layer, "groups", 1)  # which have the same rows
    return np.tile(axis.labels, groups)
