"""How long to stay enlarged: `python -m benchmarks.paper.shares --seeds 5`.

The map's pruned run under one cosine, enlarged for different shares of its steps and
pruned over half of the others, at several lengths of training: against half of the
steps, and against the narrow model from scratch on the same tokens and for the same
FLOPs. Writes shares.md and shares.json, and with `--evidence` what `keras-idea plan`
says.
"""

import dataclasses
import json
import pathlib
import sys

from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import SAME_FLOPS, SCRATCH, Cell
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.paper_table import Estimate, estimate
from benchmarks.paper.rewarm import bits
from benchmarks.paper.scale import SCALES, Scale
from benchmarks.paper.study import seeds_of, study_parser, text_of
from keras_idea.files import write_atomically
from keras_idea.report.table import markdown_table

#: The paper's share of the steps, which the others are compared with.
USUAL = 0.5
#: What a share is compared with -> in the table.
AGAINST = {
    "half": f"{USUAL:.0%}",
    "tokens": "scratch, tokens",
    "flops": "scratch, FLOPs",
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
    parser.add_argument("--evidence", type=pathlib.Path, help="for `keras-idea plan`")
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
    facts = [
        {
            "budget": budget,
            "share": share,
            "against": against,
            **dataclasses.asdict(gap),
        }
        for budget, share, against in study.comparisons()
        if (gap := difference(study, ledger, budget, share, against)) is not None
    ]
    if given.evidence is not None:
        write_atomically(given.evidence, _lines(facts))
    write_atomically(given.output / "shares.json", _lines(facts))
    write_atomically(given.output / "shares.md", to_markdown(study, facts))
    return 0


def difference(study, ledger, budget, share, against) -> Estimate | None:
    """A share minus what it is compared with, paired by seed."""
    own = bits(ledger, study.pruned(budget, share))
    other = bits(ledger, study.rival(budget, share, against))
    return estimate(own[seed] - other[seed] for seed in sorted(own.keys() & other))


def to_markdown(study, facts) -> str:
    """The table, a line a length and share."""
    header = ["tokens a parameter", "enlarged for"]
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
        f"Bits a byte of held-out text: a model enlarged {study.enlargement:.3g} times "
        "for a share of the steps and pruned over half of the others, all under one "
        f"cosine, minus the same with {USUAL:.0%}, or minus the narrow model from "
        "scratch, on as many tokens or for as many FLOPs. Mean ± standard error of "
        "differences paired by seed; negative: the share is better. The peaks of the "
        f"learning rates are the map's, searched for {USUAL:.0%} and for the narrow "
        "model on the same tokens.",
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
