"""The kinds of units that can be pruned, one row each, and the interface of a group.

A new kind is a row of `KINDS`, a class of groups (see `Group`), and a function that
finds them (`keras_idea._finding.find.FINDERS`).
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, Protocol, TypeAlias

import keras

from keras_idea._groups.cut import Cut

KindName: TypeAlias = str


@dataclasses.dataclass(frozen=True)
class Kind:
    """What messages, logs and pictures say of a kind, and how its units are counted.

    Attributes:
        name: str. As in `targets`, and in the logs.
        unit: str. One unit: "neuron".
        holder: str. What holds the units of a group: "FFN".
        layers: str. The layers of Keras among which it is found.
        width: str. What the number of active units is called: "FFN width".
        short: str. The same where there is little room.
        rounded: bool. Whether `round_to` applies.
        by_readers: bool. Whether the kernels that read a unit rank it: a normalization
            rescales a convolution's output, so its own kernel's size means nothing.
    """

    name: KindName
    unit: str
    holder: str
    layers: str
    width: str
    short: str
    rounded: bool = False
    by_readers: bool = False

    @property
    def units(self) -> str:
        """str, several units."""
        return f"{self.unit}s"


#: The kind that `target_dim` stands for.
NEURONS = "neurons"
KV_GROUPS = "kv_groups"
CHANNELS = "channels"
#: Features of the residual stream: exact when they are cut, not when they are masked.
FEATURES = "features"
#: By name; the order is that of tables.
KINDS: dict[KindName, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name=NEURONS,
            unit="neuron",
            holder="FFN",
            layers="Dense layers",
            width="FFN width",
            short="FFN width",
            rounded=True,
        ),
        # Key/value heads, each with its query heads.
        Kind(
            name=KV_GROUPS,
            unit="key/value head",
            holder="attention layer",
            layers="attention layers",
            width="key/value heads",
            short="KV heads",
        ),
        # Of convolutions; also where Dense layers make or read them.
        Kind(
            name=CHANNELS,
            unit="channel",
            holder="group of channels",
            layers="convolutions",
            width="channels",
            short="channels",
            by_readers=True,
        ),
    )
}


def are_kinds(value: Any) -> bool:
    """Whether a value lists kinds, one at least."""
    listed = isinstance(value, Collection) and not isinstance(value, str)
    return listed and bool(value) and all(kind in list(KINDS) for kind in value)


class Group(Protocol):
    """Units of one kind that are ranked among one another, and their weights."""

    @property
    def kind(self) -> KindName:
        """str, a key of `KINDS`."""

    @property
    def preserves_zero(self) -> bool:
        """bool, whether nothing that reads a unit of zeros has a gradient from it."""

    @property
    def layers(self) -> Sequence[keras.layers.Layer]:
        """The layers that hold the weights."""

    @property
    def makers(self) -> Sequence[keras.layers.Layer]:
        """The layers whose outputs are the units; empty if the units are inside one."""

    @property
    def readers(self) -> Sequence[keras.layers.Layer]:
        """The layers that are called on the units; empty likewise."""

    @property
    def shown_by(self) -> keras.layers.Layer | None:
        """The one layer that is called on the units' activations, or None."""

    @property
    def reader_bias(self) -> keras.Variable | None:
        """The bias that is added to what the units become, or None."""

    @property
    def hidden_dim(self) -> int:
        """int, units that the weights have places for."""

    def own_cuts(self) -> list[Cut]:
        """Where the units are in the weights whose zeros say that one is pruned."""

    def cuts(self) -> list[Cut]:
        """Where they are in all weights, the kernels first."""

    def held_cuts(self) -> list[Cut]:
        """Where they are in all variables, also in what is measured of them."""

    def set_hidden_dim(self, hidden_dim: int) -> None:
        """Tells the layers that their weights were narrowed."""
