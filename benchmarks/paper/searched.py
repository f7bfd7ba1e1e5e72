"""A study in which the learning rate of every arm is searched alike."""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping

from benchmarks.intervals import Estimate, detectable, estimate
from benchmarks.pages.words import signed
from benchmarks.paper.carry_out import Laboratory, carry_out
from benchmarks.paper.cell import Cell
from benchmarks.paper.compile_cache import kept_compilations
from benchmarks.paper.map.ledger import Ledger
from benchmarks.paper.map.rates import best_peak
from benchmarks.paper.rewarm import bits
from benchmarks.paper.scale import Scale
from benchmarks.paper.study import seeds_of, study_parser, text_of
from keras_idea.files import write_atomically
from keras_idea.lm.report.table import markdown_table

SEARCH_SEED = 100


@dataclasses.dataclass(frozen=True)
class Searched:
    """What is compared.

    Attributes:
        name: str, of the files.
        scale: `Scale`.
        arms: mapping of an arm's name to the fields of its `Cell`.
        pairs: tuple of (arm, rival).
        peaks: tuple of float, ascending by one factor, in units of the scale's peak:
            each is tried for every arm with one seed, which the table leaves out.
    """

    name: str
    scale: Scale
    arms: Mapping[str, Mapping]
    pairs: tuple[tuple[str, str], ...]
    peaks: tuple[float, ...]

    def __post_init__(self):
        object.__setattr__(self, "arms", types.MappingProxyType(dict(self.arms)))

    def cell(self, arm: str, peak: float) -> Cell:
        """The `Cell` of an arm."""
        return Cell(peak=peak, **self.arms[arm])

    def peak_of(self, arm: str, ledger) -> float | None:
        """The best peak of an arm; None: the search is unfinished."""
        found = [
            ledger.result(self.cell(arm, peak), SEARCH_SEED) for peak in self.peaks
        ]
        if None in found:
            return None
        best = best_peak(self.peaks, [result["bits_per_byte"] for result in found])
        return float(f"{best:.3g}")

    def facts_of(self, ledger) -> dict:
        """The search and the differences, as the JSON has them."""
        search = {
            arm: {
                f"{peak:g}": result and result["bits_per_byte"]
                for peak in self.peaks
                for result in [ledger.result(self.cell(arm, peak), SEARCH_SEED)]
            }
            for arm in self.arms
        }
        peaks = {arm: self.peak_of(arm, ledger) for arm in self.arms}
        own = {
            arm: bits(ledger, self.cell(arm, peak)) if peak else {}
            for arm, peak in peaks.items()
        }
        return {
            "search": search,
            "peaks": peaks,
            "bits": {arm: _seeds(values) for arm, values in own.items()},
            "gaps": {
                f"{arm} minus {rival}": dataclasses.asdict(gap)
                for arm, rival in self.pairs
                if (gap := _difference(own[arm], own[rival])) is not None
            },
        }


def carry_out_study(
    study: Searched, about: str, page: Callable[[dict, float], str], arguments=None
) -> int:
    """Carries out what is missing: the search, then seed by seed.

    Args:
        study: `Searched`.
        about: str, what the command does.
        page: function of `facts_of` and the core-hours to the Markdown.
        arguments: list of str; None: those of the process.
    """
    given = study_parser(about, study.name).parse_args(arguments)
    corpus = text_of(given)
    ledger = Ledger(given.output / "cells", study.scale, corpus)
    laboratory = Laboratory(study.scale, corpus, ledger)

    def carried_out(arm, peak, seed):
        carry_out(study.cell(arm, peak), laboratory, seed)
        print(f"{arm}, peak {peak:g}, seed {seed}", flush=True)
        write(given.output, study, ledger, page)

    with kept_compilations(given.runs / "compiled"):
        for arm in study.arms:
            for peak in study.peaks:
                carried_out(arm, peak, SEARCH_SEED)
        for seed in seeds_of(given):
            for arm in study.arms:
                carried_out(arm, study.peak_of(arm, ledger), seed)
    return 0


def write(folder, study: Searched, ledger, page) -> None:
    """Writes the JSON and the page."""
    facts = study.facts_of(ledger)
    text = json.dumps(facts, indent=1) + "\n"
    write_atomically(folder / f"{study.name}.json", text)
    text = page(facts, ledger.core_hours())
    write_atomically(folder / f"{study.name}.md", text)


def difference_table(facts) -> str:
    """Markdown of the differences of pairs, and of what could have been seen."""
    lines = [["difference", "bits per byte", "could have been seen", "seeds"]]
    for name, gap in facts["gaps"].items():
        own = Estimate(**gap)
        lines.append([name, signed(own, 4), _number(detectable(own)), str(own.count)])
    return markdown_table(lines).rstrip()


def search_table(study: Searched, facts) -> str:
    """Markdown of what was tried for each arm, and what the other seeds gave."""
    peaks = (f"peak {p:g}" for p in study.peaks)
    lines = [["arm", *peaks, "peak used", "bits per byte"]]
    for arm, search in facts["search"].items():
        own = facts["bits"][arm]
        mean = sum(own.values()) / len(own) if own else None
        peak = facts["peaks"][arm]
        used = "-" if peak is None else f"{peak:g}"
        lines.append([arm, *map(_number, search.values()), used, _number(mean)])
    note = (
        f"Peaks are in units of {study.scale.peak_learning_rate:g}; seed {SEARCH_SEED} "
        "searched, the lowest point of the parabola through the best peak and its "
        "neighbors is used, and the last column is the mean over the other seeds."
    )
    ends = [
        arm
        for arm, p in facts["peaks"].items()
        if p in study.peaks[:: len(study.peaks) - 1]
    ]
    if ends:
        note += f" The best may lie beyond the peaks tried: {'; '.join(ends)}."
    return f"{markdown_table(lines).rstrip()}\n\n{note}"


def _difference(own, other):
    return estimate(own[seed] - other[seed] for seed in sorted(own.keys() & other))


def _seeds(values):
    return {str(seed): value for seed, value in sorted(values.items())}


def _number(value):
    return "-" if value is None else f"{value:.4f}"
