"""The kinds of units that can be pruned, one row each."""

import dataclasses
from collections.abc import Collection
from typing import Any, TypeAlias

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
