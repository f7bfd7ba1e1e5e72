"""Figures of the studies of the paper are those of their cells."""

import itertools
import json
import re
import statistics

import pytest
import scipy.stats

from benchmarks.paper.paper_table import ONE_CPU
from tests.support.recorded import (
    PAPER,
    WIDE_NARROW,
    all_gaps,
    bits,
    cells,
    difference,
    holm,
    map_gap,
    p_value,
    read,
    rows_of,
)


@pytest.fixture(scope="module")
def of_map():
    return cells("map")


def test_the_map_is_that_of_its_cells(of_map):
    places = json.loads((PAPER / "map/map.json").read_text())["places"]
    assert len(places) == 2 * 2 * 5 * 3
    for place in places:
        rate = {"pruned": "resumed", "rewarmed": "rewarmed"}[place["way"]]
        at = float(place["budget"]), place["enlargement"], place["against"]
        mean, error, count = map_gap(of_map, *at, rate)
        known = place["difference"]
        assert known["mean"] == pytest.approx(mean, abs=1e-12)
        assert known["error"] == pytest.approx(error, rel=1e-9)
        assert known["count"] == count == 5
        told = p_value(mean, error, count) < 0.05
        expected = ("loses" if mean > 0 else "wins") if told else "not told apart"
        assert place["verdict"] == expected
        seen = error * (scipy.stats.t.ppf([0.975, 0.8], count - 1)).sum()
        assert place["seen"] == pytest.approx(seen, rel=1e-9)


def test_how_many_settings_show_something_is_counted_after_holm(of_map):
    text = read("docs/when_does_it_pay.md")
    flops, tokens = (all_gaps(of_map, against) for against in ("flops", "tokens"))
    for gaps, before in ((flops, "lower loss in "), (tokens, "worse in ")):
        worse = sum(mean > 0 and p_value(mean, e, n) < 0.05 for mean, e, n in gaps)
        assert all(mean > 0 for mean, e, n in gaps if p_value(mean, e, n) < 0.05)
        corrected = holm([p_value(*gap) for gap in gaps])
        said = text.partition(before)[2].replace("\n ", "")
        assert said.startswith(f"{worse} of 15 settings ({corrected} after Holm")
    assert (len(flops), holm([p_value(*gap) for gap in flops])) == (15, 12)


def test_what_the_page_says_of_the_map_is_that_of_the_cells(of_map):
    rows = rows_of(read("docs/when_does_it_pay.md"), "tokens per parameter | equal tok")
    for budget, *told in rows:
        places = itertools.product(("tokens", "flops"), (1.5, WIDE_NARROW, 4.0))
        for text, (against, size) in zip(told, places, strict=True):
            mean, error, _ = map_gap(of_map, float(budget), size, against)
            assert text == f"{mean:+.3f} ± {error:.3f}"


def test_what_rewarming_takes_back_and_costs_is_that_of_the_cells(of_map):
    page = read("docs/when_does_it_pay.md")
    for budget, size, loss, change, share in rows_of(
        page, "tokens per parameter | enlarged | one cosine"
    ):
        hidden = {"2.67×": None, "4×": 4.0}[size]
        ways = [
            bits(of_map, hidden=hidden, budget=float(budget), learning_rate=rate)
            for rate in ("rewarmed", "resumed")
        ]
        back = difference(*ways)
        lost = map_gap(of_map, float(budget), hidden or WIDE_NARROW, "tokens")
        assert (loss, change) == tuple(
            f"{m:+.3f} ± {e:.3f}" for m, e, _ in (lost, back)
        )
        assert share == f"{-back[0] / lost[0]:.0%}"
    flops = {}
    for record in of_map:
        fields = record["cell"]
        budget = fields.get("flops_of", fields["budget"])
        kind = fields.get("learning_rate"), fields.get("pipeline"), fields["budget"]
        if record["seed"] == 0 and (kind[0] == "rewarmed" or kind[2] == "flops"):
            key = fields.get("hidden"), budget
            flops.setdefault(key, {})[kind[0]] = record["flops"]
    more = [100 * (f["rewarmed"] / f["restarted"] - 1) for f in flops.values()]
    assert len(more) == 15
    assert f"cost {min(more):.2f} to {max(more):.1f}% more" in page.replace("\n", " ")


def test_shares_are_those_of_the_cells():
    records, rows = cells("shares"), {}
    for fact in json.loads((PAPER / "shares/shares.json").read_text()):
        share = None if fact["share"] == 0.5 else fact["share"]
        own = {"budget": float(fact["budget"]), "learning_rate": "resumed"}
        rival = {
            "half": {**own, "enlarge_share": None},
            "tokens": {"budget": own["budget"], "hidden": 2.0, "target": None},
            "flops": {"flops_of": own["budget"], "enlarge_share": share},
        }[fact["against"]]
        gap = difference(
            bits(records, **own, enlarge_share=share), bits(records, **rival)
        )
        assert (fact["mean"], fact["error"]) == pytest.approx(gap[:2], abs=1e-12)
        assert fact["count"] == gap[2]
        rows[fact["budget"], fact["share"], fact["against"]] = gap
    page = read("docs/when_does_it_pay.md")
    for budget, tenth, third, best, flops in rows_of(
        page, "tokens per parameter | 10% minus"
    ):
        for text, share in ((tenth, 0.1), (third, 0.3)):
            mean, error, _ = rows[int(budget), share, "half"]
            assert text == f"{mean:+.3f} ± {error:.3f}"
        share = int(re.search(r"\((\d+)%\)", best)[1]) / 100
        against = [rows[int(budget), share, rival] for rival in ("tokens", "flops")]
        told = [f"{mean:+.3f} ± {error:.3f}" for mean, error, _ in against]
        assert (best.partition(" (")[0], flops) == tuple(told)


def test_one_run_for_three_widths_is_that_of_the_cells():
    runs = json.loads((PAPER / "family/cells.json").read_text())

    def values(row, way):
        return {
            int(key.split(",")[0]): rows[row]["bits"]
            for key, rows in runs.items()
            if row in rows and key.endswith(way) and not key.startswith("100")
        }

    page, gaps = read("docs/when_does_it_pay.md"), []
    table = {row[0]: row[1:] for row in rows_of(page, "bits per byte | FFN width")}
    for i, width in enumerate((171, 114, 64)):
        one = values(f"{width} neurons, one run", "peak 2, annealed")
        for rival in ("from scratch", "a run each"):
            # The rivals' best is at a constant rate that decays, at each width.
            other = values(f"{width} neurons, {rival}", "peak 2, stable")
            others = values(f"{width} neurons, {rival}", "peak 4, annealed")
            assert statistics.fmean(other.values()) < statistics.fmean(others.values())
            mean, error, count = difference(one, other)
            assert table[f"one run minus {rival}"][i] == f"{mean:+.4f} ± {error:.4f}"
            assert count == 5
            gaps += [-mean] * (rival == "from scratch")
    said = f"by {min(gaps):.3f}–{max(gaps):.3f} bits per byte at equal total FLOPs"
    assert said in read("docs/when_does_it_pay.md").replace("\n ", "")


def test_a_cell_computed_on_another_machine_moves_as_the_pages_say(of_map):
    again = json.loads((PAPER / "map/moved.json").read_text())
    assert len(again) == 10
    for record in again:
        assert record["versions"]["cpu"]
        known = [r for r in of_map if r["seed"] == record["seed"]]
        [recorded] = [r for r in known if r["cell"] == record["cell"]]
        assert recorded["bits_per_byte"] == record["recorded"]
    moved = max(abs(record["again"] - record["recorded"]) for record in again)
    assert f"up to {moved:.3f} bits" in ONE_CPU


def test_a_cell_moves_with_the_number_of_cores_and_not_without():
    again = json.loads((PAPER / "nested/cores.json").read_text())
    recorded = json.loads((PAPER / "nested/cells.json").read_text())
    for record in again:
        member = recorded[record["cell"]]["members"][record["member"]]
        assert record["recorded"] == member["bits"]
    same = [record for record in again if "two cores" in record]
    assert same and all(r["two cores"] == r["recorded"] for r in same)
    moved = max(abs(record["one core"] - record["recorded"]) for record in again)
    assert f"up to {moved:.3f} bits with another number of cores" in ONE_CPU
