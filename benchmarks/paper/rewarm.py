"""Resumed or rewarmed after the enlarged stage: `python -m benchmarks.paper.rewarm`.

Over peaks of the learning rate, lengths of training and shares of neurons pruned, the
same enlarged model is pruned and recovered under the rest of its schedule ("resumed"),
or under a new one with a warm-up, lower or as high ("rewarmed"; "restarted" with a new
optimizer too). These prune after that warm-up, or at once as `optimizer.rewarm` does.
Writes rewarm.md, rewarm.json and rewarm.png.
"""

import dataclasses
import json
import sys

from benchmarks.intervals import Estimate, estimate, plus_minus
from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import RESTARTED, RESUMED, REWARMED, Cell
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.map.sizes import size_note
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.rewarm_figure import draw
from benchmarks.paper.scale import SCALES, Scale
from benchmarks.paper.study import TEXT_NOTE, seeds_of, study_parser, text_of
from keras_idea.files import write_atomically
from keras_idea.lm.report.table import markdown_table

#: As `optimizer.rewarm` does it.
AT_ONCE = "to 100 %, pruned at once"
#: What is compared with "resumed": its name -> learning_rate, restart, wait of a cell.
WAYS = {
    "rewarmed to 50 %": (REWARMED, 0.5),
    "rewarmed to 100 %": (REWARMED, 1.0),
    AT_ONCE: (REWARMED, 1.0, False),
    "restarted": (RESTARTED, 1.0),
}


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """Where the ways are compared: all share the enlarged stage.

    Attributes:
        budget: int, tokens a parameter of the narrow model.
        enlargement: float, neurons of the enlarged FFN in units of the narrow one's.
        peak: float, of the learning rate, in units of the scale's.
        enlarge_share: float, share of all steps before pruning.
    """

    budget: int
    enlargement: float
    peak: float
    enlarge_share: float = 0.5

    def cell(self, learning_rate=RESUMED, restart=1.0, wait=True) -> Cell:
        """The `Cell` of one way."""
        return Cell(
            hidden=self.enlargement,
            budget=float(self.budget),
            peak=self.peak,
            enlarge_share=self.enlarge_share,
            learning_rate=learning_rate,
            restart=restart,
            wait=wait,
        )


@dataclasses.dataclass(frozen=True)
class Study:
    """What is compared.

    Attributes:
        scale: `Scale` whose `total_steps` are one token a parameter.
        middle: `Place`; the others are it but for what they vary.
        budgets: tuple of int, each with each of the enlargements.
        enlargements: tuple of float.
        peaks: tuple of float.
        shares: tuple of float, enlarged shares.
    """

    scale: Scale
    middle: Place
    budgets: tuple[int, ...]
    enlargements: tuple[float, ...]
    peaks: tuple[float, ...]
    shares: tuple[float, ...]

    def places(self) -> list[Place]:
        """All places, each once."""
        changes = [
            *(
                {"budget": budget, "enlargement": enlargement}
                for budget in self.budgets
                for enlargement in self.enlargements
            ),
            *({"peak": peak} for peak in self.peaks),
            *({"enlarge_share": share} for share in self.shares),
        ]
        return list(
            dict.fromkeys(dataclasses.replace(self.middle, **c) for c in changes)
        )


STUDY = Study(
    # Whatever the warm-up: a schedule begun anew is shorter than the one resumed, and
    # the paper's cosine would end higher on it.
    scale=dataclasses.replace(SCALES["map"], anneal=True),
    middle=Place(30, 8 / 3, 3.0),
    budgets=(10, 30, 90, 270),
    enlargements=(4 / 3, 8 / 3, 16 / 3),
    peaks=(0.75, 1.5, 3.0, 6.0),
    shares=(0.25, 0.5, 0.75),
)


def main(arguments=None, study: Study = STUDY) -> int:
    """Carries out what is missing, seed by seed, and writes the table."""
    given = study_parser(__doc__.splitlines()[0], "rewarm").parse_args(arguments)
    corpus = text_of(given)
    ledger = Ledger(given.output / "cells", study.scale, corpus)
    laboratory = Laboratory(study.scale, corpus, ledger)
    with kept_compilations(given.runs / "compiled"):
        for seed in seeds_of(given):
            for place in study.places():
                for way in ((RESUMED, 1.0), *WAYS.values()):
                    carry_out(place.cell(*way), laboratory, seed)
                print(f"{place}, seed {seed}", flush=True)
            write(given.output, study, ledger)
    return 0


def bits(ledger, cell) -> dict[int, float]:
    """Bits a byte by seed, of what is finished and did not diverge."""
    found = {seed: ledger.result(cell, seed) for seed in range(64)}
    return {
        seed: record["bits_per_byte"]
        for seed, record in found.items()
        if record and record["bits_per_byte"] is not None
    }


def differences(ledger, place) -> dict[str, Estimate | None]:
    """Each way minus "resumed", paired by seed."""
    resumed = bits(ledger, place.cell())
    found = {}
    for name, way in WAYS.items():
        other = bits(ledger, place.cell(*way))
        both = sorted(resumed.keys() & other.keys())
        found[name] = estimate(other[seed] - resumed[seed] for seed in both)
    return found


def write(folder, study, ledger) -> None:
    """Writes all three files."""
    found = {place: differences(ledger, place) for place in study.places()}
    header = ["tokens per parameter", "enlarged", "wide stage", "peak", "resumed"]
    lines = [[*header, *WAYS]]
    for place, gaps in found.items():
        resumed = estimate(bits(ledger, place.cell()).values())
        lines.append(
            [
                f"{place.budget}",
                f"{place.enlargement:.3g}×",
                f"{place.enlarge_share:.0%}",
                f"{place.peak * study.scale.peak_learning_rate:.3g}",
                "-" if resumed is None else f"{resumed.mean:.4f}",
                *(_text(gap) for gap in gaps.values()),
            ]
        )
    counts = [gap.count for gaps in found.values() for gap in gaps.values() if gap]
    parts = [
        "# Resumed or rewarmed after the wide stage",
        "![rewarm](rewarm.png)",
        markdown_table(lines).rstrip(),
        "Bits per byte of held-out text: lower is better. A token is a byte. The other "
        "ways are differences from resumed, paired by seed: negative is better. "
        f"{plus_minus(counts)} All ways of a row share the wide stage. Rewarmed: a "
        "second warm-up and cosine for the other steps, to that share of the peak, "
        "with the optimizer's state. Restarted: to the peak, with a new optimizer.",
        "Rewarmed and restarted runs prune only after their second warm-up: they take "
        f"{_more(ledger, study)}% more FLOPs than the resumed run of their row. Those "
        "pruned at once, as `optimizer.rewarm` does, take as many as the resumed run.",
        f"{TEXT_NOTE} {size_note(study.scale, study.middle.enlargement)} {ONE_CPU} "
        f"All cells together took {ledger.core_hours():.1f} core-hours.",
    ]
    write_atomically(folder / "rewarm.md", "\n\n".join(parts) + "\n")
    facts = [
        {
            **dataclasses.asdict(place),
            "bits_per_byte": bits(ledger, place.cell()),
            **{name: gap and dataclasses.asdict(gap) for name, gap in gaps.items()},
        }
        for place, gaps in found.items()
    ]
    write_atomically(folder / "rewarm.json", json.dumps(facts, indent=1) + "\n")
    draw(folder / "rewarm.png", study, found, WAYS)


def _more(ledger, study):
    """How many more FLOPs the ways that wait take than the resumed run, in text."""
    late = [way for way in WAYS.values() if study.middle.cell(*way).wait]
    shares = []
    for place in study.places():
        cells = [place.cell(), *(place.cell(*way) for way in late)]
        spent = [[r["flops"] for r in _records(ledger, cell)] for cell in cells]
        if all(spent):
            shares += [100 * (other[0] / spent[0][0] - 1) for other in spent[1:]]
    return f"{min(shares):.1f} to {max(shares):.1f}" if shares else "some"


def _records(ledger, cell):
    found = (ledger.result(cell, seed) for seed in range(64))
    return (record for record in found if record)


def _text(gap):
    if gap is None:
        return "-"
    error = "" if gap.error is None else f" ± {gap.error:.4f}"
    return f"{gap.mean:+.4f}{error}"


if __name__ == "__main__":
    sys.exit(main())
