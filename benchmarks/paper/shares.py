"""How long to stay enlarged: `python -m benchmarks.paper.shares --seeds 5`.

The map's pruned run under one cosine, enlarged for different shares of its steps and
pruned over half of the others, at several lengths of training: against half of the
steps, and against the narrow model from scratch on the same tokens and for the same
FLOPs. Writes shares.md and shares.json.
"""

import dataclasses
import json
import sys

from benchmarks.intervals import Estimate, estimate, plus_minus
from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import SAME_FLOPS, SCRATCH, Cell
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.map.sizes import size_note
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.rewarm import bits
from benchmarks.paper.scale import SCALES, Scale
from benchmarks.paper.study import TEXT_NOTE, seeds_of, study_parser, text_of
from keras_idea.files import write_atomically
from keras_idea.lm.report.table import markdown_table

#: The paper's share of the steps, which the others are compared with.
USUAL = 0.5
#: What a share is compared with -> in the table.
AGAINST = {
    "half": f"{USUAL:.0%}",
    "tokens": "scratch, equal tokens",
    "flops": "scratch, equal FLOPs",
}


@dataclasses.dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        scale: `Scale` whose `total_steps` are one token a parameter.
        enlargement: float, neurons of the enlarged FFN in units of the narrow one's.
        peaks: dict of a budget, tokens a parameter of the narrow model, to two peaks of
            the learning rate in units of the scale's: pruned, from scratch.
        shares: tuple of float, shares of all steps before pruning, `USUAL` among them.
    """

    scale: Scale
    enlargement: float
    peaks: dict[int, tuple[float, float]]
    shares: tuple[float, ...]

    def pruned(self, budget: int, share: float) -> Cell:
        """The `Cell` of a length and a share."""
        return Cell(
            hidden=self.enlargement,
            budget=float(budget),
            peak=self.peaks[budget][0],
            enlarge_share=share,
        )

    def rival(self, budget: int, share: float, against: str) -> Cell:
        """The `Cell` that it is compared with, by a key of `AGAINST`."""
        if against == "half":
            return self.pruned(budget, USUAL)
        scratch = {"pipeline": SCRATCH, "peak": self.peaks[budget][1]}
        if against == "tokens":
            return Cell(hidden=2.0, budget=float(budget), **scratch)
        return Cell(
            hidden=self.enlargement,
            budget=SAME_FLOPS,
            flops_of=float(budget),
            enlarge_share=share,
            **scratch,
        )

    def comparisons(self) -> list[tuple[int, float, str]]:
        """All of (budget, share, against)."""
        return [
            (budget, share, against)
            for budget in self.peaks
            for share in self.shares
            for against in AGAINST
            if (share, against) != (USUAL, "half")
        ]


#: The peaks are those that the map's search found, for the usual share.
STUDY = Study(
    SCALES["map"],
    8 / 3,
    {
        10: (2.4, 3.42),
        30: (2.63, 3.23),
        90: (2.89, 3.05),
        270: (3.17, 2.89),
        540: (3.36, 2.79),
    },
    (0.1, 0.3, USUAL),
)


def main(arguments=None, study: Study = STUDY) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    parser = study_parser(__doc__.splitlines()[0], "shares")
    given = parser.parse_args(arguments)
    corpus = text_of(given)
    ledger = Ledger(given.output / "cells", study.scale, corpus)
    laboratory = Laboratory(study.scale, corpus, ledger)
    with kept_compilations(given.runs / "compiled"):
        for seed in seeds_of(given):
            for budget, share, against in study.comparisons():
                carry_out(study.pruned(budget, share), laboratory, seed)
                carry_out(study.rival(budget, share, against), laboratory, seed)
                print(f"{budget} tokens, {share:.0%}, {against}, {seed}", flush=True)
    write(given.output, study, ledger)
    return 0


def facts_of(study, ledger) -> list[dict]:
    """All comparisons that are finished, as shares.json has them."""
    return [
        {
            "budget": budget,
            "share": share,
            "against": against,
            **dataclasses.asdict(gap),
        }
        for budget, share, against in study.comparisons()
        if (gap := difference(study, ledger, budget, share, against)) is not None
    ]


def write(folder, study, ledger) -> None:
    """Writes both files."""
    facts = facts_of(study, ledger)
    write_atomically(folder / "shares.json", _lines(facts))
    write_atomically(
        folder / "shares.md", to_markdown(study, facts, ledger.core_hours())
    )


def difference(study, ledger, budget, share, against) -> Estimate | None:
    """A share minus what it is compared with, paired by seed."""
    own = bits(ledger, study.pruned(budget, share))
    other = bits(ledger, study.rival(budget, share, against))
    return estimate(own[seed] - other[seed] for seed in sorted(own.keys() & other))


def to_markdown(study, facts, core_hours: float) -> str:
    """The table, a line a length and share."""
    header = ["tokens per parameter", "wide stage"]
    lines = [[*header, *(f"against {name}" for name in AGAINST.values()), "seeds"]]
    for budget in study.peaks:
        for share in study.shares:
            own = {
                fact["against"]: fact
                for fact in facts
                if (fact["budget"], fact["share"]) == (budget, share)
            }
            counts = sorted({fact["count"] for fact in own.values()})
            line = [f"{budget}", f"{share:.0%}", *(_text(own.get(a)) for a in AGAINST)]
            lines.append([*line, ", ".join(map(str, counts))])
    parts = [
        "# How long to stay enlarged",
        markdown_table(lines).rstrip(),
        f"Bits per byte of held-out text: a model enlarged {study.enlargement:.3g}× "
        "that stays wide for a share of its steps and is pruned over half of the "
        f"others, under one cosine, minus the same with {USUAL:.0%}, or minus the "
        "narrow model trained from scratch, at equal tokens or equal FLOPs. A token is "
        "a byte. "
        "Differences are paired by seed: negative is better for the share. "
        f"{plus_minus(fact['count'] for fact in facts)}",
        "A shorter wide stage takes fewer FLOPs, so each share has its own rival at "
        "equal FLOPs. The peaks of the learning rates are the map's, searched for "
        f"{USUAL:.0%} and for the narrow model at equal tokens: not for the other "
        "shares, and not for the longer runs of the narrow model.",
        f"{TEXT_NOTE} {size_note(study.scale, study.enlargement)} {ONE_CPU} "
        f"All cells together took {core_hours:.1f} core-hours.",
    ]
    return "\n\n".join(parts) + "\n"


def _lines(facts):
    return "[\n" + ",\n".join(map(json.dumps, facts)) + "\n]\n"


def _text(fact):
    if fact is None:
        return "-"
    error = "" if fact["error"] is None else f" ± {fact['error']:.4f}"
    return f"{fact['mean']:+.4f}{error}"


if __name__ == "__main__":
    sys.exit(main())
