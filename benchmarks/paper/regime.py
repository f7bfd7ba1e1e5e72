"""The paper's own regime: `python -m benchmarks.paper.regime --seeds 6`.

The paper trains for 1,540 tokens per parameter and prunes a model enlarged 2.67 times.
Here the same on a model of 16,464 parameters: wide for 10 or 50 percent of the steps,
against the narrow model from scratch at equal tokens. The peak of the learning rate is
searched for every arm alike. Writes regime.md and regime.json.
"""

import dataclasses
import json
import math
import sys

from benchmarks.intervals import Estimate, detectable, estimate, plus_minus
from benchmarks.pages.words import signed
from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import SCRATCH, Cell
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.map.rates import best_peak
from benchmarks.paper.map.sizes import size_note
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.rewarm import bits
from benchmarks.paper.scale import SCALES
from benchmarks.paper.study import TEXT_NOTE, seeds_of, study_parser, text_of
from keras_idea.files import write_atomically
from keras_idea.report.table import markdown_table

#: `total_steps` are one token per parameter: 16,384 of 16,464.
SCALE = dataclasses.replace(SCALES["map"], name="regime", model_dim=16, total_steps=16)
ENLARGEMENT = 8 / 3
#: Tokens per parameter, as many as the paper's 1.3B model sees.
TOKENS = 1540.0
#: Peaks of the learning rate in units of the scale's, each searched for every arm.
PEAKS = (1.5, 3.0, 6.0, 12.0)
SEARCH_SEED = 100
#: Name on the page: the cell at a peak.
ARMS = {
    "wide for 10%": dict(enlarge_share=0.1),
    "wide for 50%": dict(enlarge_share=0.5),
    "scratch": dict(pipeline=SCRATCH, hidden=ENLARGEMENT),
}
#: What is compared with what.
PAIRS = (
    ("wide for 10%", "scratch"),
    ("wide for 50%", "scratch"),
    ("wide for 10%", "wide for 50%"),
)
#: Bits per byte by which the paper's pruned model beats scratch (0.8% of perplexity).
PAPER_EFFECT = 0.003
#: Known before the runs: the standard deviation of such differences at 540 tokens per
#: parameter (shares.md: 0.0024 to 0.0028 times the root of 5).
SPREAD_BEFORE = 0.006


def cell(arm: str, peak: float) -> Cell:
    """The `Cell` of an arm of `ARMS`."""
    return Cell(budget=TOKENS, peak=peak, **ARMS[arm])


def peak_of(arm: str, ledger) -> float | None:
    """The best peak of an arm, of what was searched; None: the search is unfinished."""
    found = [ledger.result(cell(arm, peak), SEARCH_SEED) for peak in PEAKS]
    if None in found:
        return None
    best = best_peak(PEAKS, [result["bits_per_byte"] for result in found])
    return float(f"{best:.3g}")


def main(arguments=None) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    given = study_parser(__doc__.splitlines()[0], "regime").parse_args(arguments)
    corpus = text_of(given)
    ledger = Ledger(given.output / "cells", SCALE, corpus)
    laboratory = Laboratory(SCALE, corpus, ledger)

    def carried_out(arm, peak, seed):
        carry_out(cell(arm, peak), laboratory, seed)
        print(f"{arm}, peak {peak:g}, seed {seed}", flush=True)
        write(given.output, ledger)

    with kept_compilations(given.runs / "compiled"):
        for arm in ARMS:
            for peak in PEAKS:
                carried_out(arm, peak, SEARCH_SEED)
        for seed in seeds_of(given):
            for arm in ARMS:
                carried_out(arm, peak_of(arm, ledger), seed)
    return 0


def facts_of(ledger) -> dict:
    """The search and the differences, as regime.json has them."""
    search = {
        arm: {
            f"{peak:g}": result and result["bits_per_byte"]
            for peak in PEAKS
            for result in [ledger.result(cell(arm, peak), SEARCH_SEED)]
        }
        for arm in ARMS
    }
    peaks = {arm: peak_of(arm, ledger) for arm in ARMS}
    own = {
        arm: bits(ledger, cell(arm, peak)) if peak else {}
        for arm, peak in peaks.items()
    }
    return {
        "search": search,
        "peaks": peaks,
        "bits": {arm: _seeds(values) for arm, values in own.items()},
        "gaps": {
            f"{arm} minus {rival}": dataclasses.asdict(gap)
            for arm, rival in PAIRS
            if (gap := _difference(own[arm], own[rival])) is not None
        },
    }


def needed_seeds(spread: float, effect: float = PAPER_EFFECT) -> int:
    """How many paired seeds show an effect, at 5% with a power of 80%.

    Args:
        spread: float, standard deviation of the paired differences.
        effect: float, the true difference.

    Example:
    >>> needed_seeds(0.003)
    10
    """
    count = 2
    while detectable(Estimate(0.0, spread / math.sqrt(count), count)) > effect:
        count += 1
    return count


def write(folder, ledger) -> None:
    """Writes both files."""
    facts = facts_of(ledger)
    write_atomically(folder / "regime.json", json.dumps(facts, indent=1) + "\n")
    write_atomically(folder / "regime.md", to_markdown(facts, ledger.core_hours()))


def to_markdown(facts, core_hours: float) -> str:
    """The page: the differences first, then the arms and the search."""
    gaps = [["difference", "bits per byte", "could have been seen", "seeds"]]
    for name, gap in facts["gaps"].items():
        own = Estimate(**gap)
        gaps.append([name, signed(own, 4), _number(detectable(own)), str(own.count)])
    arms = [["arm", *(f"peak {p:g}" for p in PEAKS), "peak used", "bits per byte"]]
    for arm, search in facts["search"].items():
        own = facts["bits"][arm]
        mean = sum(own.values()) / len(own) if own else None
        peak = facts["peaks"][arm]
        used = "-" if peak is None else f"{peak:g}"
        arms.append([arm, *map(_number, search.values()), used, _number(mean)])
    parts = [
        "# The paper's own regime",
        markdown_table(gaps).rstrip(),
        f"Bits per byte of held-out text, paired by seed, after {TOKENS:,.0f} tokens "
        f"per parameter: a model enlarged {ENLARGEMENT:.3g}× that stays wide for 10% "
        "or 50% of its steps and is pruned over half of the others, under one cosine, "
        "and the narrow model from scratch at equal tokens. Negative: the first is "
        f"better. The paper's own effect is about {PAPER_EFFECT} bits. "
        f"{plus_minus(gap['count'] for gap in facts['gaps'].values())}",
        "The power, computed before the runs: the standard deviation of such "
        f"differences at 540 tokens per parameter is about {SPREAD_BEFORE}. With it, "
        f"{needed_seeds(SPREAD_BEFORE)} seeds would show the paper's effect (5%, power "
        "80%), and "
        f"{needed_seeds(SPREAD_BEFORE, 0.01)} one of 0.01 bits.",
        "## The search for the rate",
        markdown_table(arms).rstrip(),
        f"Peaks are in units of {SCALE.peak_learning_rate:g}; seed {SEARCH_SEED} "
        "searched, the lowest point of the parabola through the best peak and its "
        "neighbors is used, and the last column is the mean over the other seeds.",
        f"{TEXT_NOTE} That text is read {_epochs():.1f} times. "
        f"{size_note(SCALE, ENLARGEMENT)} {ONE_CPU} All cells together took "
        f"{core_hours:.1f} core-hours.",
    ]
    return "\n\n".join(parts) + "\n"


def _epochs():
    return TOKENS * SCALE.total_steps * SCALE.tokens_a_step / 9.99e6


def _difference(own, other):
    return estimate(own[seed] - other[seed] for seed in sorted(own.keys() & other))


def _seeds(values):
    return {str(seed): value for seed, value in sorted(values.items())}


def _number(value):
    return "-" if value is None else f"{value:.4f}"


if __name__ == "__main__":
    sys.exit(main())
