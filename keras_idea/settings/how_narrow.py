"""How narrow a recommended run makes a model: its target, checked, and its rounding."""

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.finding.budget import Budget, costs_of
from keras_idea.finding.find import FFN, find_groups
from keras_idea.finding.targets import Targets, check_targets, target_widths
from keras_idea.groups.kinds import KINDS, NEURONS, KindName
from keras_idea.settings import rules
from keras_idea.settings.rules import RULES, Situation
from keras_idea.settings.setting import Setting, given, setting


@dataclasses.dataclass(frozen=True)
class HowNarrow:
    """The settings of a model's target.

    Attributes:
        settings: dict of the target, `kept` (what `shrink` takes) and `round_to`.
        parameters: int, of the narrow model.
        widest: int, the most units that a layer keeps.
        can_refit: bool, whether a refit sees what reads the units.
    """

    settings: dict[str, Setting]
    parameters: int
    widest: int
    can_refit: bool


def how_narrow(model: keras.Model, target: Any, situation: Situation) -> HowNarrow:
    """The target of `recommended` for a model; None: the recommended share.

    Raises:
        ArgumentError: if there is nothing to prune, or the target cannot be met.
    """
    share = RULES["target_dim"][situation][0]
    wanted = share.value if target is None else target
    name, targets, budget = _checked(wanted)
    groups = find_groups(model, tuple(targets))
    missing = [kind for kind in targets if all(g.kind != kind for g in groups)]
    if missing:
        raise ArgumentError(
            f"Model '{model.name}' has no {missing[0]!r} that can be pruned; "
            "`keras_idea.explain(model)` says why. Give another model or target."
        )
    rounding = _round_to(targets, groups, situation)
    widths = target_widths(targets, budget, model, groups, rounding.value)
    costs = costs_of(model, groups)
    start, end = costs([g.full_dim for g in groups]), costs([n for _, n in widths])
    if budget and budget.allows(start):
        raise ArgumentError(
            f"The model is within {budget} already: it has {start.parameters:,} "
            "parameters. Give a smaller `target`."
        )
    for group, units in widths:
        if units >= group.full_dim and not budget:
            raise ArgumentError(
                f"`target` must leave fewer than the {group.full_dim} {group.units} of "
                f"{group.name}. Received: target={target!r}, which keeps {units}. "
                "Lower it."
            )
    known = setting(share) if target is None else given(wanted, "your target")
    kept = _of_shrink(targets, widths, situation)
    reason = f"{end.parameters:,} of {start.parameters:,} parameters stay"
    settings = {name: known, "kept": given(kept, reason), "round_to": rounding}
    widest = max(n for _, n in widths)
    seen = all(g.weights.shown_by or g.kind != NEURONS for g in groups)
    return HowNarrow(settings, end.parameters, widest, can_refit=seen)


def _checked(target: Any) -> tuple[str, Targets, Budget]:
    """The argument of `IdeaPruneCallback` that a target is, and what that says."""
    if isinstance(target, Mapping):
        return "targets", check_targets(None, target, (NEURONS,), 1, Budget()), Budget()
    whole = isinstance(target, numbers.Integral) and not isinstance(target, bool)
    if whole and target >= 1:
        budget = Budget(int(target))
        return "target_parameters", {NEURONS: None}, budget
    if isinstance(target, numbers.Real) and 0 < float(target) < 1:
        return "target_dim", {NEURONS: float(target)}, Budget()
    raise ArgumentError(
        "`target` must be a float in (0, 1) (the fraction of the neurons to keep), an "
        "integer >= 1 (the most parameters), or a dict of targets such as "
        f'{{"neurons": 1024}}. Received: target={target!r}.'
    )


def _round_to(targets: Targets, groups: Sequence[FFN], situation: Situation) -> Setting:
    advice = RULES["round_to"][situation][0]
    rounded = [g.full_dim for g in groups if KINDS[g.kind].rounded]
    if any(isinstance(n, int) for n in targets.values()) or not rounded:
        return given(1, "your target is a number")
    devices = rules.ROUND_ON_DEVICES
    if on_devices() and min(rounded) >= rules.MULTIPLES * devices.value:
        advice = devices
    if min(rounded) < rules.MULTIPLES * advice.value:
        advice = rules.AS_IT_IS if advice.value > 1 else advice
    return setting(advice)


def on_devices() -> bool:
    """Whether this process computes on something else than CPUs."""
    return "cpu" not in str(ops.zeros(()).device).lower()


def _of_shrink(
    targets: Targets, widths: Sequence[tuple[FFN, int]], situation: Situation
) -> dict[KindName, int | float]:
    """Of each kind the number that all layers keep; the share, where they differ."""
    kept: dict[KindName, int | float] = {}
    for kind, target in targets.items():
        numbers_kept = {units for group, units in widths if group.kind == kind}
        if len(numbers_kept) == 1 or isinstance(target, int):
            kept[kind] = max(numbers_kept)
        elif isinstance(target, float):
            kept[kind] = target
        elif situation == "very few":
            raise ArgumentError(
                "`target` must be a fraction here: `keras_idea.shrink` takes one "
                "number for all FFNs, and these differ in width. Received: a limit of "
                "parameters. Give a float in (0, 1)."
            )
    return kept
