"""The map: `python -m benchmarks.paper.map --seeds 5`, and again after a stop."""

import math
import sys

from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.arms import MAP, Grid
from benchmarks.paper.map.findings import Findings
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.map.rates import Rates
from benchmarks.paper.map.write import write_map
from benchmarks.paper.study import seeds_of, study_parser, text_of

#: The law needs less than the comparisons do.
WIDE_SEEDS = 2


def main(arguments=None, grid: Grid = MAP) -> int:
    """Carries out what is missing, seed by seed, and writes the map."""
    parser = study_parser(__doc__, "map")
    parser.add_argument(
        "--search",
        type=int,
        metavar="SEED",
        help="search learning rates with this seed alone, and stop",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=math.inf,
        help="leave out places of more tokens a parameter",
    )
    given = parser.parse_args(arguments)
    corpus = text_of(given)
    corpus.check_length(grid.scale.sequence_length)
    laboratory = Laboratory(
        grid.scale, corpus, Ledger(given.output / "cells", grid.scale, corpus)
    )
    with kept_compilations(given.runs / "compiled"):
        for seed in grid.sweep_seeds if given.search is None else [given.search]:
            for arm in grid.swept_arms():
                for peak in grid.peaks:
                    carry_out_arm(arm, peak, laboratory, seed)
        if given.search is not None:
            return 0
        rates = Rates(grid, laboratory.store)
        for seed in seeds_of(given):
            arms = grid.compared_arms()
            arms += grid.wide_arms() if seed < WIDE_SEEDS else []
            for arm in arms:
                if arm.budget <= given.budget:
                    carry_out_arm(arm, rates(arm), laboratory, seed)
            _write(given, grid, laboratory, rates)
    _write(given, grid, laboratory, rates)
    return 0


def _write(given, grid, laboratory, rates):
    tokens = len(laboratory.corpus.train)
    findings = Findings(grid, laboratory.store, rates, tokens)
    print(*write_map(given.output, findings), sep="\n", flush=True)


def carry_out_arm(arm, peak, laboratory, seed) -> None:
    """Carries out an arm, unless it is finished."""
    cell = arm.cell(peak)
    if laboratory.store.result(cell, seed) is not None:
        return
    found = carry_out(cell, laboratory, seed)
    print(
        f"{arm.name}, peak {peak:.3g}, seed {seed}: {found['bits_per_byte']} bits per "
        f"byte, {found['seconds']:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
