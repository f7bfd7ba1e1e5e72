"""Checks pruning targets, and computes the width of each group from them."""

import bisect
import fractions
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import keras

from keras_idea._finding.budget import Budget, costs_of
from keras_idea._graph.group import FFN
from keras_idea._groups.kinds import KINDS, NEURONS, KindName, are_kinds
from keras_idea._validation import check_choice, check_size
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
        return {NEURONS: _check_size("target_dim", target_dim, round_to)}
    return {**check_sizes(targets, list(KINDS), round_to)}


def check_sizes(
    targets: Any, axes: Collection[str], round_to: int = 1
) -> dict[str, int | float]:
    """Returns what stays of each axis, which must be a number or a fraction."""
    if not isinstance(targets, Mapping) or not targets:
        raise ArgumentError(
            '`targets` must be a dict such as {"neurons": 0.4, "kv_groups": 0.5}. '
            f"Received: targets={targets!r}."
        )
    for axis in targets:
        check_choice("targets", axis, list(axes))
    return {
        axis: _check_size(f"targets[{axis!r}]", size, _step(axis, round_to))
        for axis, size in targets.items()
    }


def _check_size(name: str, size: Any, step: int) -> int | float:
    size = check_size(name, size)
    if isinstance(size, int) and size % step:
        raise ArgumentError(
            f"`{name}` must be a multiple of round_to={step}. Received: {name}={size}."
        )
    return size


def check_groups(groups: Any) -> Any:
    """Raises if `groups` is neither None nor a function of an `FFN` handle."""
    if groups is not None and not callable(groups):
        raise ArgumentError(
            "`groups` must be None or a function of an FFN handle, such as "
            f"`lambda ffn: 'decoder' in ffn.name`. Received: groups={groups!r}."
        )
    return groups


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
    steps = [(ffn.full_dim, _step(ffn.kind, round_to)) for ffn in ffns]
    if not budget:
        return [
            (ffn, target_width(target, full, step))
            for ffn, (full, step) in zip(ffns, steps, strict=True)
            if (target := targets[ffn.kind]) is not None
        ]
    widest = max((full for full, step in steps if step == round_to), default=round_to)
    if round_to > widest:
        raise ArgumentError(
            f"No multiple of `round_to` is within the FFN width of {widest}. "
            f"Received: round_to={round_to}. Lower `round_to`."
        )
    sizes = _at_one_fraction(steps)
    if all(ffn.kind == NEURONS for ffn in ffns):
        widths = range(round_to, widest + 1, round_to)
        sizes = [[min(width, ffn.full_dim) for ffn in ffns] for width in widths]
    costs = costs_of(model, ffns)
    count = bisect.bisect_right(
        sizes, False, key=lambda size: not budget.allows(costs(size))
    )
    if not count:
        raise ArgumentError(
            f"{budget} cannot be met by pruning: the smallest model still has "
            f"{costs(sizes[0])}. Raise the budget, lower `round_to`, or begin with a "
            "model of fewer layers or features."
        )
    return list(zip(ffns, sizes[count - 1], strict=True))


def _step(axis: str, round_to: int) -> int:
    return round_to if axis in KINDS and KINDS[axis].rounded else 1


def _at_one_fraction(steps: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Lists the sizes at which all layers keep the same fraction of their units.

    `steps` has a pair per layer: its units, and the multiple that it keeps. Ascending:
    one entry per fraction at which a layer, rounded to the nearest, keeps more.

    Example:
    >>> _at_one_fraction([(4, 1), (2, 1)])
    [[1, 1], [1, 1], [2, 1], [3, 1], [3, 2], [4, 2]]
    """
    # A layer narrower than its multiple keeps all.
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
    most: dict[str, int] = {}
    for ffn, n in targets:
        where = f"{ffn.units} stay in each {KINDS[ffn.kind].holder}"
        most[where] = max(n, most.get(where, 0))
    stay = ", ".join(f"at most {n} {where}" for where, n in most.items())
    return f"{budget}: {stay}. The narrow model has {costs}."
