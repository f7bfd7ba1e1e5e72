"""What the finished cells say: differences, what could be seen, the law beside them."""

import dataclasses

import numpy as np

from benchmarks.intervals import (
    Estimate,
    detectable,
    estimate,
    half_width,
)
from benchmarks.paper.map.arms import (
    IDEA,
    PRUNED,
    REWARMED,
    SAME_FLOPS_ARM,
    SAME_TOKENS,
    WIDE,
    Arm,
    Grid,
)
from benchmarks.paper.map.law import Law, fit
from benchmarks.paper.map.rates import Rates, longer
from benchmarks.paper.map.sizes import average_parameters, parameters

#: What a pruned run is compared with -> in words.
AGAINST = {"tokens": "equal tokens", "flops": "equal FLOPs"}
_SEEDS = range(64)


@dataclasses.dataclass(frozen=True)
class Place:
    """A place of the map: pruned minus scratch, in bits per byte.

    Attributes:
        budget: int, tokens a parameter of the narrow model.
        enlargement: float.
        against: "tokens" or "flops".
        difference: `Estimate` or None, over seeds; negative: pruning wins.
        predicted: float or None, by the law.
        way: str, `IDEA` or `REWARMED`, of the pruned run.
        flops: float or None, operations of the pruned run in units of its rival's.
    """

    budget: int
    enlargement: float
    against: str
    difference: Estimate | None
    predicted: float | None
    way: str = IDEA
    flops: float | None = None

    @property
    def seen(self) -> float | None:
        """The smallest difference that would have been seen: 80 % power at 5 %."""
        return None if self.difference is None else detectable(self.difference)

    @property
    def verdict(self) -> str:
        """Str: "wins", "loses", or "not told apart" at 5 %; "not run"."""
        gap = self.difference
        width = None if gap is None else half_width(gap)
        if gap is None or width is None:
            return "not run"
        if abs(gap.mean) <= width:
            return "not told apart"
        return "wins" if gap.mean < 0 else "loses"


class Findings:
    """The results of each arm at its own learning rate.

    Args:
        grid: `Grid`.
        ledger: `Ledger`.
        rates: `Rates`.
        text_tokens: int, tokens of the text that is trained on.
    """

    def __init__(self, grid: Grid, ledger, rates: Rates, text_tokens: int):
        self.grid, self.rates, self._ledger = grid, rates, ledger
        self.text_tokens, self.core_hours = text_tokens, ledger.core_hours()
        self.law = self._law()

    def records(self, arm: Arm) -> dict[int, dict]:
        """The records of an arm by seed."""
        cell = arm.cell(self.rates(arm))
        found = {seed: self._ledger.result(cell, seed) for seed in _SEEDS}
        return {seed: record for seed, record in found.items() if record}

    def bits(self, arm: Arm) -> dict[int, float | None]:
        """Bits a byte by seed; None: training diverged."""
        return {seed: r["bits_per_byte"] for seed, r in self.records(arm).items()}

    def size(self, arm: Arm) -> float:
        """Parameters, averaged over the run."""
        return average_parameters(arm.cell(1.0), self.grid.scale)

    def places(self) -> list[Place]:
        """All places, run or not."""
        return [
            Place(
                budget,
                enlargement,
                against,
                self._difference(budget, enlargement, against, way),
                self._predicted(budget, enlargement, against),
                way,
                self._flops(budget, enlargement, against, way),
            )
            for way in PRUNED
            for against in AGAINST
            for budget in self.grid.budgets
            for enlargement in self.grid.enlargements
        ]

    def _difference(self, budget, enlargement, against, way):
        arms = _pair(budget, enlargement, against, way)
        pruned, rival = (self.bits(arm) for arm in arms)
        both = [
            (pruned[seed], rival[seed]) for seed in sorted(pruned.keys() & rival.keys())
        ]
        return estimate(a - b for a, b in both if a is not None and b is not None)

    def _flops(self, budget, enlargement, against, way):
        spent = [
            next(iter(self.records(arm).values()), {}).get("flops")
            for arm in _pair(budget, enlargement, against, way)
        ]
        return None if None in spent else spent[0] / spent[1]

    def rewarmed(self, budget: int, enlargement: float) -> Estimate | None:
        """The rewarmed run minus that under one cosine, paired by seed."""
        one, again = (
            self.bits(Arm(kind=way, enlargement=enlargement, budget=budget))
            for way in PRUNED
        )
        both = [(again[seed], one[seed]) for seed in sorted(again.keys() & one.keys())]
        return estimate(a - b for a, b in both if a is not None and b is not None)

    def _predicted(self, budget, enlargement, against):
        if self.law is None:
            return None
        pruned, rival = _pair(budget, enlargement, against)
        scale = self.grid.scale
        tokens = budget * scale.total_steps * scale.tokens_a_step
        more = longer(rival, self.grid) / budget
        narrow = parameters(scale, scale.target_dim)
        return float(
            self.law(self.size(pruned), tokens) - self.law(narrow, more * tokens)
        )

    def point(self, arm: Arm) -> list[tuple[float, int, float]]:
        """(average parameters, tokens, mean bits) of an arm in a list; []: not run."""
        records = self.records(arm)
        known = [b for b in self.bits(arm).values() if b is not None]
        if not known:
            return []
        tokens = next(iter(records.values()))["tokens"]
        return [(self.size(arm), tokens, float(np.mean(known)))]

    def _law(self) -> Law | None:
        """Fitted on what was never pruned, narrow and wide; None: too little."""
        arms = [a for a in self.grid.compared_arms() if a.kind not in PRUNED]
        points = [p for a in [*arms, *self.grid.wide_arms()] for p in self.point(a)]
        enough = len({size for size, _, _ in points}) > 2 and len(points) > 6
        return fit(*zip(*points, strict=True)) if enough else None

    def law_errors(self) -> list[float]:
        """The law minus the bits of each pruned arm: none of them was fitted."""
        arms = [a for a in self.grid.compared_arms() if a.kind == IDEA]
        points = [p for a in arms for p in self.point(a)] if self.law else []
        return [float(self.law(size, tokens)) - b for size, tokens, b in points]


def _pair(budget, enlargement, against, way=IDEA):
    pruned = Arm(kind=way, enlargement=enlargement, budget=budget)
    if against == "tokens":
        return pruned, Arm(kind=SAME_TOKENS, enlargement=1.0, budget=budget)
    return pruned, Arm(kind=SAME_FLOPS_ARM, enlargement=enlargement, budget=budget)


def kinds(grid: Grid) -> list[tuple[str, float]]:
    """(kind, enlargement) of all arms, as the table lists them."""
    rest = (IDEA, REWARMED, SAME_FLOPS_ARM, WIDE)
    return [(SAME_TOKENS, 1.0), *((k, e) for k in rest for e in grid.enlargements)]
