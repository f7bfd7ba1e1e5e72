"""Checks pruning targets, and computes the width of each group from them."""

import fractions
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras

from keras_idea._finding.budget import Budget, check_round_to, costs_of
from keras_idea._finding.find import FFN
from keras_idea._groups.kinds import KINDS, NEURONS, KindName, are_kinds
from keras_idea._validation import check_choice, check_int
from keras_idea.errors import ArgumentError

#: By kind: an int, what each group keeps; a float in (0, 1), the fraction of it; or
#: None: what the budget allows.
Targets: TypeAlias = dict[KindName, int | float | None]


def check_targets(
    target_dim: Any, targets: Any, round_to: int, budget: Budget
) -> Targets:
    """Returns the target of each kind; with a budget, the kinds with None.

    `target_dim` is the target of "neurons". With a budget, `targets` lists the kinds
    that it prunes. Raises if a target is given twice, or is not a number or a fraction.
    """
    if target_dim is not None and (targets is not None or budget):
        raise ArgumentError(
            "Give one of `target_dim`, `targets` and a budget: target_dim=x is "
            f'targets={{"neurons": x}}. Received: target_dim={target_dim!r} too.'
        )
    if budget:
        kinds = (NEURONS,) if targets is None else targets
        numbers_too = isinstance(kinds, Mapping) and any(kinds.values())
        if not are_kinds(kinds) or numbers_too:
            raise ArgumentError(
                f"`targets` must list the kinds that {budget} prunes, such as "
                f'("neurons", "kv_groups"). Received: targets={targets!r}.'
            )
        return dict.fromkeys(kinds)
    if targets is None:
        return {NEURONS: _check_target("target_dim", target_dim, NEURONS, round_to)}
    if not isinstance(targets, Mapping) or not targets:
        raise ArgumentError(
            '`targets` must be a dict such as {"neurons": 0.4, "kv_groups": 0.5}. '
            f"Received: targets={targets!r}."
        )
    for kind in targets:
        check_choice("targets", kind, tuple(KINDS))
    return {
        kind: _check_target(f"targets[{kind!r}]", value, kind, round_to)
        for kind, value in targets.items()
    }


def _check_target(name: str, target: Any, kind: KindName, round_to: int) -> int | float:
    if isinstance(target, numbers.Integral) and not isinstance(target, bool):
        target = check_int(name, target, minimum=1)
        if KINDS[kind].rounded and target % round_to:
            raise ArgumentError(
                f"`{name}` must be a multiple of round_to={round_to}. "
                f"Received: {name}={target}."
            )
        return target
    if isinstance(target, numbers.Real) and 0 < float(target) < 1:
        return float(target)
    units = f"{KINDS[kind].units} to keep in each {KINDS[kind].holder}"
    raise ArgumentError(
        f"`{name}` must be an integer >= 1 ({units}) or a float in (0, 1) (the "
        f"fraction to keep); or give a budget. Received: {name}={target!r}."
    )


def check_groups(groups: Any) -> Any:
    """Raises if `groups` is neither None nor a function of an `FFN` handle."""
    if groups is not None and not callable(groups):
        raise ArgumentError(
            "`groups` must be a function of an FFN handle, or None. Received: "
            f"groups={groups!r}. Give for example "
            "groups=lambda ffn: ffn.name.startswith('decoder')."
        )
    return groups


def target_name(targets: Targets, kind: KindName) -> str:
    """Returns the name of the argument that holds the target of a kind."""
    if len(targets) > 1 or kind != NEURONS:
        return f"targets[{kind!r}]"
    return "target_dim"


def target_width(target_dim: int | float, full_dim: int, round_to: int) -> int:
    """Returns how many neurons an FFN keeps: the nearest multiple above 0.

    Example:
    >>> target_width(0.375, full_dim=1000, round_to=64)
    384
    """
    if isinstance(target_dim, int):
        return target_dim
    return max(1, round(target_dim * full_dim / round_to)) * round_to


def target_widths(
    targets: Targets,
    budget: Budget,
    model: keras.Model,
    ffns: Sequence[FFN],
    round_to: int,
) -> list[tuple[FFN, int]]:
    """Returns what each group keeps.

    With a budget, all FFNs get one width, the largest within it. If it prunes other
    kinds too, each group keeps the same fraction, rounded to the nearest. Only kinds
    that are rounded are multiples of `round_to`.
    """
    if not budget:
        return [
            (ffn, target_width(target, ffn.full_dim, _step(ffn, round_to)))
            for ffn in ffns
            if (target := targets[ffn.kind]) is not None
        ]
    costs = costs_of(model, ffns)
    if all(ffn.kind == NEURONS for ffn in ffns):

        def least(width: int) -> list[int]:
            return [min(width, ffn.full_dim) for ffn in ffns]

        widest = max(ffn.full_dim for ffn in ffns)
        check_round_to(round_to, widest)
        widths_of_all = range(round_to, widest + 1, round_to)
        smallest = f"width, {round_to}" + f" ({round_to=})" * (round_to > 1)
        width = budget.most(widths_of_all, lambda w: costs(least(w)), smallest)
        return list(zip(ffns, least(width), strict=True))
    steps = [(ffn.full_dim, _step(ffn, round_to)) for ffn in ffns]
    widths = budget.most(sizes_at_one_ratio(steps), costs, "size")
    return list(zip(ffns, widths, strict=True))


def _step(ffn: FFN, round_to: int) -> int:
    return round_to if KINDS[ffn.kind].rounded else 1


def sizes_at_one_ratio(steps: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Lists the sizes at which all layers keep the same fraction of their units.

    `steps` has a pair per layer: its units, and the multiple that it keeps. Ascending:
    one entry per fraction at which a layer, rounded to the nearest, keeps more.

    Example:
    >>> sizes_at_one_ratio([(4, 1), (2, 1)])
    [[1, 1], [1, 1], [2, 1], [3, 1], [3, 2], [4, 2]]
    """
    widest = max((full for full, step in steps if step > 1), default=None)
    round_to = max(step for _, step in steps)
    if widest is not None:
        check_round_to(round_to, widest)
    # A layer narrower than `round_to` keeps all.
    steps = [(full, min(step, full)) for full, step in steps]
    half = fractions.Fraction(1, 2)
    shares = {
        # Exact: a float may lie below the quotient that it stands for.
        (size - half) * step / full
        for full, step in steps
        for size in range(1, full // step + 1)
    }
    return [
        [
            max(1, min(int(share * full / step + half), full // step)) * step
            for full, step in steps
        ]
        for share in sorted(shares)
    ]


def budget_line(
    budget: Budget, model: keras.Model, targets: Sequence[tuple[FFN, int]]
) -> str:
    """Returns a line for the console: what a budget allows."""
    costs = costs_of(model, [ffn for ffn, _ in targets])([n for _, n in targets])
    stay = []
    for name, kind in KINDS.items():
        most = max((n for ffn, n in targets if ffn.kind == name), default=0)
        received = f"at most {most} {kind.units} stay in each {kind.holder}"
        stay += [received] if most else []
    return (
        f"{budget}: {', '.join(stay)}. The narrow model has "
        f"{costs.parameters:,} parameters and takes {costs.flops:,} FLOPs per "
        f"{costs.per}."
    )
