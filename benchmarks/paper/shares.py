"""How long to stay enlarged: `python -m benchmarks.paper.shares --seeds 5`.

The map's pruned run under one cosine, enlarged for different shares of its steps and
pruned over half of the others, at several lengths of training. Writes shares.md and
shares.json, and with `--evidence` what `keras-idea plan` says of it.
"""

import dataclasses
import json
import pathlib
import sys

from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import Cell
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


@dataclasses.dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        scale: `Scale` whose `total_steps` are one token a parameter.
        enlargement: float, neurons of the enlarged FFN in units of the narrow one's.
        peaks: dict of a budget, tokens a parameter of the narrow model, to the peak of
            its learning rate in units of the scale's.
        shares: tuple of float, shares of all steps before pruning; `USUAL` is another.
    """

    scale: Scale
    enlargement: float
    peaks: dict[int, float]
    shares: tuple[float, ...]

    def cell(self, budget: int, share: float) -> Cell:
        """The `Cell` of a length and a share."""
        return Cell(
            hidden=self.enlargement,
            budget=float(budget),
            peak=self.peaks[budget],
            enlarge_share=share,
        )

    def gaps(self, ledger, budget) -> dict[float, Estimate | None]:
        """Each share minus the usual one, paired by seed."""
        usual, found = bits(ledger, self.cell(budget, USUAL)), {}
        for share in self.shares:
            own = bits(ledger, self.cell(budget, share))
            both = sorted(own.keys() & usual.keys())
            found[share] = estimate(own[seed] - usual[seed] for seed in both)
        return found


#: The peaks are those that the map's search found for the usual share.
STUDY = Study(
    SCALES["map"], 8 / 3, {10: 2.4, 30: 2.63, 90: 2.89, 270: 3.17}, (0.1, 0.3)
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
            for budget in study.peaks:
                for share in (*study.shares, USUAL):
                    carry_out(study.cell(budget, share), laboratory, seed)
                print(f"{budget} tokens a parameter, seed {seed}", flush=True)
    facts = [
        {"budget": budget, "share": share, **dataclasses.asdict(gap)}
        for budget in study.peaks
        for share, gap in study.gaps(ledger, budget).items()
        if gap is not None
    ]
    if given.evidence is not None:
        write_atomically(given.evidence, _lines(facts))
    write(given.output, study, ledger, facts)
    return 0


def write(folder, study, ledger, facts) -> None:
    """Writes the table and its numbers."""
    shares = [f"{share:.0%} minus {USUAL:.0%}" for share in study.shares]
    header = ["tokens a parameter", "peak", f"enlarged {USUAL:.0%}", *shares]
    lines = [[*header, "seeds"]]
    for budget, peak in study.peaks.items():
        usual = estimate(bits(ledger, study.cell(budget, USUAL)).values())
        gaps = study.gaps(ledger, budget).values()
        lines.append(
            [
                f"{budget}",
                f"{peak * study.scale.peak_learning_rate:.3g}",
                _text(usual),
                *(_text(gap, "+") for gap in gaps),
                f"{0 if usual is None else usual.count}",
            ]
        )
    parts = [
        "# How long to stay enlarged",
        markdown_table(lines).rstrip(),
        f"Bits a byte of held-out text, enlarged {study.enlargement:.3g} times for a "
        "share of the steps, pruned over half of the others, all under one cosine; "
        "mean ± standard error, differences paired by seed, negative: better than "
        f"{USUAL:.0%}. The peaks are the map's, searched for {USUAL:.0%}.",
    ]
    write_atomically(folder / "shares.md", "\n\n".join(parts) + "\n")
    write_atomically(folder / "shares.json", _lines(facts))


def _lines(facts):
    return "[\n" + ",\n".join(map(json.dumps, facts)) + "\n]\n"


def _text(one, sign=""):
    if one is None:
        return "-"
    error = "" if one.error is None else f" ± {one.error:.4f}"
    return f"{one.mean:{sign}.4f}{error}"


if __name__ == "__main__":
    sys.exit(main())
