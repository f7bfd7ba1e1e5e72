"""Where a run stands among the measured ones: the map of when pruning pays.

The measurements are those of `benchmarks/results/paper/map` and `.../shares`, as
`python -m benchmarks.paper.map --evidence keras_idea/runs/evidence.json` and `python -m
benchmarks.paper.shares --evidence keras_idea/runs/shares.json` write them.
"""

import dataclasses
import functools
import importlib.resources
import json
import math

#: What a pruned run was compared with -> in words.
AGAINST = {
    "tokens": "on the same tokens",
    "flops": "for the same FLOPs",
}


@dataclasses.dataclass(frozen=True)
class Measured:
    """A place of the map: pruned minus trained narrow from scratch.

    Attributes:
        budget: int, tokens a parameter of the narrow model.
        enlargement: float, neurons of the enlarged FFN over those of the narrow one.
        rewarmed: bool, whether the pruned run's learning rate warmed up again to its
            peak when pruning began; else it was one cosine.
        against: str, a key of `AGAINST`.
        mean: float, bits a byte of held-out text; negative: pruning is better.
        error: float, its standard error over seeds.
        verdict: "wins", "loses" or "not told apart", of pruning.
    """

    budget: int
    enlargement: float
    rewarmed: bool
    against: str
    mean: float
    error: float
    verdict: str


@dataclasses.dataclass(frozen=True)
class Share:
    """A share of the steps before pruning, minus what it is compared with.

    Attributes:
        budget: int, tokens a parameter of the narrow model.
        share: float, of all steps; half of the others prune.
        against: "half" of all steps before pruning, or the narrow model from scratch
            on the same "tokens" or for the same "flops".
        mean: float, bits a byte of held-out text; negative: the share is better.
        error: float, its standard error over seeds.
        count: int, seeds.
    """

    budget: int
    share: float
    against: str
    mean: float
    error: float
    count: int


@functools.cache
def measured() -> tuple[Measured, ...]:
    """All places that were measured."""
    return tuple(Measured(**place) for place in _read("evidence.json"))


@functools.cache
def shares() -> tuple[Share, ...]:
    """All shares that were measured, at the middle enlargement."""
    return tuple(Share(**place) for place in _read("shares.json"))


def _read(name):
    path = importlib.resources.files("keras_idea.runs") / name
    return json.loads(path.read_text("utf-8"))


def standing(budget: float, enlargement: float, share: float) -> list[str]:
    """What was measured nearest to a run, in words.

    Args:
        budget: float > 0, tokens a parameter of the narrow model.
        enlargement: float > 1, neurons of the enlarged FFN over the narrow one's.
        share: float in [0, 1), the share of its steps before pruning.

    Returns:
        List of str, lines; empty if nothing is enlarged.
    """
    places = measured()
    if enlargement <= 1.0 or not places:
        return []
    budgets = sorted({place.budget for place in places})
    sizes = sorted({place.enlargement for place in places})
    at, size = _nearest(budget, budgets), _nearest(enlargement, sizes)
    lines = [
        f"{budget:,.3g} tokens a parameter of the narrow model, enlarged "
        f"{enlargement:.3g} times. Nearest on our map ({budgets[0]} to {budgets[-1]} "
        f"tokens, {sizes[0]:.3g} to {sizes[-1]:.3g} times, models of 26,000 parameters"
        f"): {at} tokens, {size:.3g} times, where pruning"
    ]
    for place in places:
        if (place.budget, place.enlargement) == (at, size):
            rate = ", rewarmed" if place.rewarmed else ", under one cosine"
            lines.append(
                f"  {_VERDICTS[place.verdict]} training the narrow model from scratch "
                f"{AGAINST[place.against]}{rate}: {place.mean:+.4f} ± "
                f"{place.error:.4f} bits a byte"
            )
    lines += _of_shares(budget, share)
    return [*lines, *_outside(budget, enlargement, budgets, sizes)]


def _of_shares(budget, own):
    """What was measured of shares of the steps before pruning; this run's is `own`."""
    at = _nearest(budget, {place.budget for place in shares()})
    lines = [
        f"  Before pruning: {own:.0%} of the steps. Measured at {at} tokens, "
        "2.67 times, under one cosine:"
    ]
    for share in sorted({place.share for place in shares()}):
        found = ", ".join(
            f"{place.mean:+.4f} ± {place.error:.4f} {_RIVALS[place.against]}"
            for place in shares()
            if (place.budget, place.share) == (at, share)
        )
        lines.append(f"    {share:.0%}: {found}")
    return lines


_RIVALS = {
    "half": "against 50%",
    "tokens": "against scratch",
    "flops": "against scratch for the same FLOPs",
}
_VERDICTS = {
    "wins": "beat",
    "loses": "lost to",
    "not told apart": "was not told apart from",
}


def _nearest(value, known):
    return min(known, key=lambda other: abs(math.log(value / other)))


def _outside(budget, enlargement, budgets, sizes):
    """A warning where the map says nothing."""
    inside = budgets[0] <= budget <= budgets[-1]
    if inside and sizes[0] <= enlargement <= sizes[-1]:
        return []
    return ["  This run lies outside what was measured: take that as a hint."]
