"""A study whose rates are searched alike: the peak used, the pairs, what is missing."""

import dataclasses

import numpy as np
import pytest

from benchmarks.paper import optimizers, regime
from benchmarks.paper.scale import SCALES
from benchmarks.paper.searched import (
    SEARCH_SEED,
    Searched,
    difference_table,
    search_table,
)

STUDY = Searched(
    name="two",
    scale=SCALES["mini"],
    arms={"wide": dict(enlarge_share=0.1), "scratch": dict(pipeline="scratch")},
    pairs=(("wide", "scratch"),),
    peaks=(1.0, 2.0, 4.0, 8.0),
)
TRIED = {"wide": (3.0, 2.6, 2.5, 2.9), "scratch": (2.4, 2.6, 2.9, 3.5)}
GIVEN = {"wide": (2.4, 2.7, 2.6), "scratch": (2.5, 2.75, 2.8)}


@dataclasses.dataclass
class Kept:
    """Bits by cell and seed, as a ledger gives them."""

    bits: dict

    def result(self, cell, seed):
        found = self.bits.get((cell, seed))
        return None if found is None else {"bits_per_byte": found}


def lowest(tried):
    """The vertex of the parabola through the best of the middle peaks, by polyfit."""
    i = int(np.argmin(tried))
    logs = np.log(STUDY.peaks)[i - 1 : i + 2]
    a, b, _ = np.polyfit(logs, tried[i - 1 : i + 2], 2)
    return float(f"{np.exp(-b / (2 * a)):.3g}")


@pytest.fixture
def searched():
    found = {
        (STUDY.cell(arm, peak), SEARCH_SEED): bits
        for arm, tried in TRIED.items()
        for peak, bits in zip(STUDY.peaks, tried, strict=True)
    }
    return Kept(found)


def test_the_peak_is_the_parabolas_or_the_end_of_those_tried(searched):
    assert STUDY.peak_of("wide", searched) == lowest(TRIED["wide"])
    assert STUDY.peak_of("scratch", searched) == 1.0


def test_a_peak_at_an_end_is_told_of(searched):
    said = search_table(STUDY, STUDY.facts_of(searched))
    assert said.endswith("The best may lie beyond the peaks tried: scratch.")


def test_a_search_that_is_unfinished_gives_no_peak_and_no_number(searched):
    del searched.bits[STUDY.cell("wide", 8.0), SEARCH_SEED]
    facts = STUDY.facts_of(searched)
    assert facts["peaks"] == {"wide": None, "scratch": 1.0}
    assert facts["gaps"] == {} and facts["bits"]["wide"] == {}
    assert "| wide    | 3.0000 | 2.6000 | 2.5000 |      - |         - |" in (
        search_table(STUDY, facts)
    )


def test_differences_are_of_pairs_of_seeds_at_the_peaks_used(searched):
    for arm, peak in (("wide", lowest(TRIED["wide"])), ("scratch", 1.0)):
        for seed, bits in enumerate(GIVEN[arm]):
            searched.bits[STUDY.cell(arm, peak), seed] = bits
    searched.bits[STUDY.cell("scratch", 1.0), 3] = 9.0  # without a partner
    facts = STUDY.facts_of(searched)
    pairs = np.subtract(GIVEN["wide"], GIVEN["scratch"])
    gap = facts["gaps"]["wide minus scratch"]
    assert gap["mean"] == pytest.approx(pairs.mean(), abs=1e-12)
    error = pairs.std(ddof=1) / np.sqrt(3)
    assert gap["error"] == pytest.approx(error, abs=1e-12) and gap["count"] == 3
    assert f"{pairs.mean():+.4f} ± {error:.4f}" in difference_table(facts)


@pytest.mark.parametrize("study", [regime.STUDY, optimizers.STUDY])
def test_rivals_see_as_many_tokens_and_the_peaks_rise_by_one_factor(study):
    factors = np.divide(study.peaks[1:], study.peaks[:-1])
    assert np.allclose(factors, factors[0]) and factors[0] > 1
    for pair in study.pairs:
        own, rival = (study.cell(arm, 1.0) for arm in pair)
        assert own.budget == rival.budget
        assert own.optimizer == rival.optimizer or own.pipeline == rival.pipeline
