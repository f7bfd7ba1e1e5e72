"""Pruned against scratch, by optimizer: `python -m benchmarks.paper.optimizers`.

As table 10 of `benchmarks.paper` at its scale "mini", but the peak of the learning rate
is searched for every arm alike, and the search is recorded. Writes optimizers.md and
optimizers.json.
"""

import sys

from benchmarks.intervals import plus_minus
from benchmarks.paper.build import OPTIMIZERS
from benchmarks.paper.cell import SCRATCH, Cell
from benchmarks.paper.map.sizes import size_note
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.scale import SCALES
from benchmarks.paper.searched import (
    Searched,
    carry_out_study,
    difference_table,
    search_table,
)
from benchmarks.paper.study import TEXT_NOTE

WAYS = {"pruned": {}, "scratch": dict(pipeline=SCRATCH)}
STUDY = Searched(
    name="optimizers",
    scale=SCALES["mini"],
    arms={
        f"{optimizer}, {way}": dict(optimizer=optimizer, **fields)
        for optimizer in OPTIMIZERS
        for way, fields in WAYS.items()
    },
    pairs=(
        *((f"{o}, pruned", f"{o}, scratch") for o in OPTIMIZERS),
        ("muon, scratch", "adamw, scratch"),
    ),
    peaks=(0.125, 0.25, 0.5, 1.0, 2.0),
)


def main(arguments=None) -> int:
    """Carries out what is missing, seed by seed, and writes the page."""
    about = __doc__.splitlines()[0]
    return carry_out_study(STUDY, about, to_markdown, arguments)


def to_markdown(facts, core_hours: float) -> str:
    """The page: the differences first, then the arms and the search."""
    factors = ", ".join(f"{name} {kind.peak:g}" for name, kind in OPTIMIZERS.items())
    scale, enlargement = STUDY.scale, Cell().hidden
    parts = [
        "# Pruned against scratch, by optimizer",
        difference_table(facts),
        f"Bits per byte of held-out text, paired by seed, at equal tokens: a model "
        f"enlarged {enlargement:.3g}×, wide for half of its steps, and the narrow "
        "model from scratch. Negative: pruning is better. "
        f"{plus_minus(gap['count'] for gap in facts['gaps'].values())}",
        "## The search for the rate",
        search_table(STUDY, facts),
        f"An optimizer's own factor comes on top: {factors}.",
        f"{TEXT_NOTE} {size_note(scale, enlargement)} {ONE_CPU} All cells together "
        f"took {core_hours:.1f} core-hours.",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
