"""How many units of each kind a run's model has."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_idea.errors import ArgumentError
from keras_idea.groups.kinds import KINDS, KindName, are_kinds
from keras_idea.lm.runs.config import fields


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The neurons and key/value heads of a model whose layers are all alike.

    Attributes:
        neurons: int, of each FFN.
        kv_groups: int or None, key/value heads of each attention layer, each with its
            query heads. None: as many as the run begins with, which prunes none.

    Example:
    >>> print(Sizes(512, 4), "|", Sizes(512, 4).pruned_to(Sizes(192, 2)))
    FFN width 512, key/value heads 4 | FFN width 512 to 192, key/value heads 4 to 2
    """

    neurons: int
    kv_groups: int | None = None

    def __str__(self) -> str:
        """The sizes in words."""
        return ", ".join(f"{KINDS[k].width} {n:,}" for k, n in self.by_kind().items())

    def pruned_to(self, end: "Sizes") -> str:
        """What becomes of the sizes, in words: of those that become smaller."""
        before = self.by_kind()
        return ", ".join(
            f"{KINDS[kind].width} {before[kind]:,} to {units:,}"
            for kind, units in self.smaller_in(end).items()
        )

    def smaller_in(self, end: "Sizes") -> dict[KindName, int]:
        """Dict of the kinds of which `end` has fewer units, to those."""
        before = self.by_kind()
        return {k: n for k, n in end.by_kind().items() if n < before[k]}

    def by_kind(self) -> dict[KindName, int]:
        """Dict of a kind to its units; without heads where none are pruned."""
        sizes: dict[KindName, int] = {"neurons": self.neurons}
        if self.kv_groups is not None:
            sizes["kv_groups"] = self.kv_groups
        return sizes


def check_targets(name: str, value: Any) -> dict[KindName, int | float]:
    """`value` if it is a table of kinds, each with what is kept of it."""
    if not isinstance(value, Mapping) or not value or set(value) - set(KINDS):
        raise ArgumentError(
            f"`{name}` must be a table such as {{ neurons = 0.4, kv_groups = 0.5 }}, "
            f"of {' and '.join(KINDS)}. Received: {name}={value!r}."
        )
    return {
        kind: fields.check_kept(f"{name}.{kind}", value[kind])
        for kind in KINDS
        if kind in value
    }


def check_kinds(name: str, value: Any) -> tuple[KindName, ...]:
    """`value` as a tuple if it lists kinds."""
    if not are_kinds(value):
        raise ArgumentError(
            f"`{name}` must list some of {', '.join(map(repr, KINDS))}. Received: "
            f"{name}={value!r}."
        )
    return tuple(kind for kind in KINDS if kind in value)
