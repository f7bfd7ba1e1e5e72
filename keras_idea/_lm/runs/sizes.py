"""The sizes of a run's model: at the start, at the end, and step by step."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_idea import methods
from keras_idea._finding.budget import Budget
from keras_idea._finding.find import find_groups
from keras_idea._finding.targets import target_widths
from keras_idea._groups.kinds import KINDS, KindName
from keras_idea._lm.runs.config import Model, RunConfig
from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.functional.width import (
    narrowing_steps,
    stored_width,
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The neurons and key/value heads of a model whose layers are all alike."""

    neurons: int  # of each FFN
    kv_groups: int | None = None  # key/value heads per layer; None: none are pruned

    def __str__(self) -> str:
        """The sizes in words."""
        return ", ".join(f"{KINDS[k].width} {n:,}" for k, n in self.by_kind().items())

    def pruned_to(self, end: "Sizes") -> str:
        """Says which sizes become smaller, in words."""
        before = self.by_kind()
        return ", ".join(
            f"{KINDS[kind].width} {before[kind]:,} to {units:,}"
            for kind, units in self.smaller_in(end).items()
        )

    def smaller_in(self, end: "Sizes") -> dict[KindName, int]:
        """The kinds of which `end` has fewer units, and how many it has."""
        before = self.by_kind()
        return {k: n for k, n in end.by_kind().items() if n < before[k]}

    def by_kind(self) -> dict[KindName, int]:
        """The units by kind; without heads if none are pruned."""
        heads = {} if self.kv_groups is None else {"kv_groups": self.kv_groups}
        return {"neurons": self.neurons, **heads}


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The steps and sizes of a run."""

    begin: int  # the last step of the wide stage
    end: int  # the last step of the pruning stage
    total: int
    wide: Sizes  # at the start
    narrow: Sizes  # at the end
    # By step after which `fit` narrows the model, its sizes from then on; ascending.
    narrowings: Mapping[int, Sizes]

    @property
    def stages(self) -> list[tuple[str, int, int]]:
        """List of (name, first step, last step) of the stages that have steps."""
        stages = [
            ("wide", 0, self.begin),
            ("pruning", self.begin, self.end),
            ("recovery", self.end, self.total),
        ]
        return [stage for stage in stages if stage[1] < stage[2]]


def make_timeline(config: RunConfig, wide: Sizes, narrow: Sizes) -> Timeline:
    """Computes the timeline of a run.

    Example:
    >>> make_timeline(RunConfig(), Sizes(512), Sizes(192)).end
    750
    """
    begin, steps = config.budget.enlarge_steps, config.budget.prune_steps
    method, before = methods.get(config.pruning.method), wide.by_kind()
    schedules = {
        kind: method.width_schedule(
            before[kind], units, begin, steps, config.pruning.update_every
        )
        for kind, units in wide.smaller_in(narrow).items()
    }
    narrowings = {}
    for step in narrowing_steps(
        config.pruning.compact,
        list(schedules.values()),
        method.end_step(begin, steps),
        eager=keras.backend.backend() == "torch",
    ):
        units, devices = {}, config.distribution.model
        for kind, each in schedules.items():  # which devices share if they can
            parts = 1 if each.full_dim % devices else devices
            units[kind] = stored_width(each(step), each, parts)
        narrowings[step] = dataclasses.replace(wide, **units)
    # Methods that decide once may have a schedule that falls one step later.
    narrowings |= dict.fromkeys([*narrowings][-1:], narrow)
    return Timeline(
        begin,
        begin + steps,
        config.budget.total_steps,
        wide,
        narrow,
        narrowings,
    )


def narrow_sizes(
    shape: Model, start: Sizes, outline: Callable[[Sizes], keras.Model], parts: int = 1
) -> Sizes:
    """Computes the sizes of a run's model at the end."""
    units, kinds = start.by_kind(), shape.pruned_kinds
    budget = Budget(shape.target_parameters)
    targets: Any = dict.fromkeys(kinds)
    if not budget:
        targets = shape.targets or {"neurons": shape.target_dim or 192}
    model = outline(start)
    groups = [g for g in find_groups(model, kinds) if g.kind in targets]
    round_to = shape.round_to if not budget else math.lcm(shape.round_to, parts)
    try:
        widths = target_widths(targets, budget, model, groups, round_to)
    except ArgumentError as error:
        raise ConfigError(f"[model] {error}") from None
    kept: dict[str, int] = {group.kind: count for group, count in widths}
    for kind, count in kept.items():
        if count >= units[kind] and not (budget and kept != units):
            raise ConfigError(
                f"[model] The target must keep fewer than the {units[kind]} "
                f"{KINDS[kind].units}. Received: {targets[kind] or budget}, which "
                f"keeps {count}. Lower it."
            )
        if count % parts:
            raise ConfigError(
                f"`distribution.model` must divide the {KINDS[kind].units} at the end, "
                f"{count}. Received: {parts}. Set another target, or use `data`."
            )
    return dataclasses.replace(start, **kept)
