"""The cells of the map, as data."""

import dataclasses

from benchmarks.paper.cell import REWARMED as REWARMED_RATE
from benchmarks.paper.cell import SAME_FLOPS, SCRATCH, Cell
from benchmarks.paper.scale import SCALES, Scale

IDEA, REWARMED = "pruned", "rewarmed"
SAME_TOKENS, SAME_FLOPS_ARM, WIDE = "scratch", "scratch+", "wide"
#: The pruned runs, which are compared with the others.
PRUNED = (IDEA, REWARMED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to come by a model, at one place of the map.

    Attributes:
        kind: str, `IDEA`; `REWARMED`, the same but for a learning rate that warms up
            again when pruning begins, to its peak; `SAME_TOKENS`, a narrow model from
            scratch; `SAME_FLOPS_ARM`, the same for as many FLOPs as the pruned one
            took; or `WIDE`, the enlarged model from scratch, never pruned.
        enlargement: float, 1.0 for `SAME_TOKENS`.
        budget: int, tokens a parameter of the narrow model; of `SAME_FLOPS_ARM`: the
            pruned run's.
    """

    kind: str
    enlargement: float
    budget: int

    @property
    def name(self) -> str:
        """Str, of its row."""
        return f"{self.kind} {self.enlargement:.3g}, {self.budget} tokens per parameter"

    def cell(self, peak: float) -> Cell:
        """The `Cell` that carries it out, at a peak in units of the scale's."""
        if self.kind in PRUNED:
            anew = {"learning_rate": REWARMED_RATE} if self.kind == REWARMED else {}
            budget = float(self.budget)
            return Cell(hidden=self.enlargement, budget=budget, peak=peak, **anew)
        if self.kind == SAME_FLOPS_ARM:
            return Cell(
                pipeline=SCRATCH,
                hidden=self.enlargement,
                budget=SAME_FLOPS,
                flops_of=float(self.budget),
                peak=peak,
            )
        return Cell(
            pipeline=SCRATCH,
            # Not the target itself, whose neurons would be scored.
            hidden=2 * self.enlargement,
            target=self.enlargement,
            budget=float(self.budget),
            peak=peak,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grid:
    """The places of a map, and where learning rates are searched.

    Attributes:
        scale: `Scale` whose `total_steps` are one token a parameter.
        budgets: tuple of int, tokens a parameter of the narrow model, ascending.
        enlargements: tuple of float, neurons of the enlarged FFN in units of the narrow
            one's, ascending.
        peaks: tuple of float, searched, in units of the scale's peak, ascending by one
            factor.
        swept: tuple of two of the budgets, at which they are searched.
        sweep_seeds: tuple of int, none of the map's seeds.
    """

    scale: Scale
    budgets: tuple[int, ...]
    enlargements: tuple[float, ...]
    peaks: tuple[float, ...]
    swept: tuple[int, int]
    sweep_seeds: tuple[int, ...] = (100, 101)

    def swept_arms(self) -> list[Arm]:
        """The arms whose learning rate is searched: cheap ones first."""
        kinds = [(SAME_TOKENS, 1.0), *((IDEA, e) for e in self.enlargements)]
        return [
            Arm(kind=kind, enlargement=enlargement, budget=budget)
            for budget in self.swept
            for kind, enlargement in kinds
        ]

    def compared_arms(self) -> list[Arm]:
        """The arms that are compared: cheap ones first."""
        kinds = [(SAME_TOKENS, 1.0)]
        for enlargement in self.enlargements:
            rest = (IDEA, REWARMED, SAME_FLOPS_ARM)
            kinds += [(kind, enlargement) for kind in rest]
        return [
            Arm(kind=kind, enlargement=enlargement, budget=budget)
            for budget in self.budgets
            for kind, enlargement in kinds
        ]

    def wide_arms(self) -> list[Arm]:
        """The enlarged models, for the law of loss, size and tokens."""
        return [
            Arm(kind=WIDE, enlargement=enlargement, budget=budget)
            for budget in self.budgets
            for enlargement in self.enlargements
        ]


#: The map of the README.
MAP = Grid(
    scale=SCALES["map"],
    budgets=(10, 30, 90, 270, 540),
    enlargements=(1.5, 8 / 3, 4.0),
    peaks=(1.0, 2.0, 4.0, 8.0),
    swept=(30, 270),
)
