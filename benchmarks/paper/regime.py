"""The paper's own regime: `python -m benchmarks.paper.regime --seeds 6`.

The paper trains for 1,540 tokens per parameter and prunes a model enlarged 2.67 times.
Here the same on a model of 16,464 parameters: wide for 10 or 50 percent of the steps,
against the narrow model from scratch at equal tokens. The peak of the learning rate is
searched for every arm alike. Writes regime.md and regime.json.
"""

import dataclasses
import math
import sys

from benchmarks.intervals import Estimate, detectable, plus_minus
from benchmarks.paper.cell import SCRATCH
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

ENLARGEMENT = 8 / 3
#: Tokens per parameter, as many as the paper's 1.3B model sees.
TOKENS = 1540.0
STUDY = Searched(
    name="regime",
    # `total_steps` are one token per parameter: 16,384 of 16,464.
    scale=dataclasses.replace(
        SCALES["map"], name="regime", model_dim=16, total_steps=16
    ),
    arms={
        "wide for 10%": dict(budget=TOKENS, enlarge_share=0.1),
        "wide for 50%": dict(budget=TOKENS, enlarge_share=0.5),
        "scratch": dict(budget=TOKENS, pipeline=SCRATCH, hidden=ENLARGEMENT),
    },
    pairs=(
        ("wide for 10%", "scratch"),
        ("wide for 50%", "scratch"),
        ("wide for 10%", "wide for 50%"),
    ),
    peaks=(1.5, 3.0, 6.0, 12.0),
)
#: Bits per byte by which the paper's pruned model beats scratch (0.8% of perplexity).
PAPER_EFFECT = 0.003
#: Known before the runs: the standard deviation of such differences at 540 tokens per
#: parameter (shares.md: 0.0024 to 0.0028 times the root of 5).
SPREAD_BEFORE = 0.006


def main(arguments=None) -> int:
    """Carries out what is missing, seed by seed, and writes the page."""
    about = __doc__.splitlines()[0]
    return carry_out_study(STUDY, about, to_markdown, arguments)


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


def to_markdown(facts, core_hours: float) -> str:
    """The page: the differences first, then the arms and the search."""
    parts = [
        "# The paper's own regime",
        difference_table(facts),
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
        search_table(STUDY, facts),
        f"{TEXT_NOTE} That text is read {_epochs():.1f} times. "
        f"{size_note(STUDY.scale, ENLARGEMENT)} {ONE_CPU} All cells together took "
        f"{core_hours:.1f} core-hours.",
    ]
    return "\n\n".join(parts) + "\n"


def _epochs():
    return TOKENS * STUDY.scale.total_steps * STUDY.scale.tokens_a_step / 9.99e6


if __name__ == "__main__":
    sys.exit(main())
