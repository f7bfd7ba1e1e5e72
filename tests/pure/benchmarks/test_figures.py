"""Figures on pages are those of the records, which are computed here another way."""

import itertools
import json
import re
import statistics

import numpy as np
import pytest
import scipy.stats

from benchmarks.pages import __main__ as pages
from benchmarks.pages.blocks import by_hand, fill, names
from benchmarks.paper.paper_table import ONE_CPU
from benchmarks.paper.study import TEXT_NOTE
from tests.support import ROOT

#: All records that this file reads lie here.
RESULTS = ROOT / "benchmarks" / "results"
PAPER = RESULTS / "paper"
BACKENDS = ("torch", "jax", "tensorflow")
WIDE_NARROW = 8 / 3
#: Figures that stand on a page by hand, and are no measurements.
SETTINGS = {"0.3", "3.2e-2", "3.2e-4", "3.07", "1.6", "1.9", "1.0", "0.10.2"}
SETTINGS |= {
    "2310.07707",
    "3.11",
    "3.13.2",
    "3.15",
    "3.15.1",
    "2.4.6",
    "3.11.7",
    "2.67",
    "2.0",
}


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def cells(study):
    """Records of a study: (fields at other than their default, seed, record)."""
    paths = sorted((PAPER / study / "cells").glob("seed-*.json"))
    assert paths
    return [r for path in paths for r in json.loads(path.read_text()).values()]


def bits(records, **wanted):
    """Bits by seed of the cells with such fields; None: the field is not there."""
    found = {}
    for record in records:
        fields = record["cell"]
        if record["seed"] < 100 and all(fields.get(k) == v for k, v in wanted.items()):
            assert record["seed"] not in found
            found[record["seed"]] = record["bits_per_byte"]
    return found


def difference(one, other):
    """Mean, standard error and count over the seeds of both."""
    gaps = np.array([one[s] - other[s] for s in sorted(one.keys() & other.keys())])
    return gaps.mean(), gaps.std(ddof=1) / np.sqrt(len(gaps)), len(gaps)


def p_value(mean, error, count):
    return 2 * scipy.stats.t.sf(abs(mean) / error, count - 1)


def holm(p_values):
    """How many hypotheses Holm's procedure rejects at 5 %, step by step."""
    ordered = sorted(p_values)
    steps = [p <= 0.05 / (len(ordered) - i) for i, p in enumerate(ordered)]
    return len(list(itertools.takewhile(bool, steps)))


def map_gap(records, budget, size, against, rate="resumed"):
    """Pruned minus scratch at a place of the map, from its cells alone."""
    hidden = None if size == WIDE_NARROW else size
    pruned = bits(records, hidden=hidden, budget=budget, learning_rate=rate)
    if against == "tokens":
        # A narrow model is written as enlarged twice and never pruned.
        rival = {"hidden": 2.0, "budget": budget, "target": None}
    else:
        rival = {"hidden": hidden, "budget": "flops", "flops_of": budget}
    return difference(pruned, bits(records, pipeline="scratch", **rival))


@pytest.fixture(scope="module")
def of_map():
    return cells("map")


def all_gaps(records, against, rate="resumed"):
    places = itertools.product((10.0, 30.0, 90.0, 270.0, 540.0), (1.5, 8 / 3, 4.0))
    return [map_gap(records, *place, against, rate) for place in places]


def rows_of(text, header):
    """The cells of the table whose header line begins so, without bold and italics."""
    lines = text[text.index(f"| {header}") :].splitlines()
    table = list(itertools.takewhile(lambda line: line.startswith("|"), lines))[2:]
    strip = [[cell.strip(" *") for cell in row.split("|")[1:-1]] for row in table]
    assert strip
    return strip


def test_every_page_is_what_its_records_say(tmp_path):
    assert pages.stale(tmp_path) == []


@pytest.mark.parametrize("page", pages.PAGES)
def test_no_figure_of_a_page_is_written_by_hand(page):
    text = read(page)
    assert names(text)
    text = re.sub(r"```.*?```", "", by_hand(text), flags=re.DOTALL)
    text = re.sub(r"(?m)^    .*$|\]\([^)\n]*\)|`[^`\n]*`", "", text)
    left = re.findall(r"\d[\d,]*\.\d+(?:[.e-]*\d+)*|± *\d+", text)
    assert set(left) <= SETTINGS, f"{page}: {set(left) - SETTINGS}"


@pytest.mark.nightly(rows=("docs/when_does_it_pay.md",), why="the others suffice")
@pytest.mark.daily("torch", why="the rest takes 1.2 s on torch")
@pytest.mark.parametrize("page", pages.PAGES)
def test_a_figure_that_is_changed_is_put_right(page):
    """So `stale` would name the page."""
    text = read(page)
    place = text.index("records: ")
    figure = re.compile(r"\d\.\d\d+").search(text, place)
    wrong = text[: figure.start()] + "9.999" + text[figure.end() :]
    assert fill(wrong, pages.BLOCKS) == text != wrong


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
    text = read("README.md")
    flops, tokens = (all_gaps(of_map, against) for against in ("flops", "tokens"))
    for gaps, before in ((flops, "lower loss in "), (tokens, "worse in ")):
        worse = sum(mean > 0 and p_value(mean, e, n) < 0.05 for mean, e, n in gaps)
        assert all(mean > 0 for mean, e, n in gaps if p_value(mean, e, n) < 0.05)
        corrected = holm([p_value(*gap) for gap in gaps])
        said = text.partition(before)[2].replace("\n ", "")
        assert said.startswith(f"{worse} of 15 settings ({corrected} after Holm")
    assert (len(flops), holm([p_value(*gap) for gap in flops])) == (15, 12)


def test_the_readme_s_table_is_that_of_the_cells(of_map):
    rows = rows_of(read("README.md"), "tokens per parameter | equal tokens | equal")
    assert [row[0] for row in rows] == ["10", "30", "90", "270", "540"]
    for budget, *told in rows:
        columns = (("tokens",), ("tokens", "rewarmed"), ("flops",))
        for text, column in zip(told, columns, strict=True):
            mean, error, _ = map_gap(of_map, float(budget), WIDE_NARROW, *column)
            assert text == f"{mean:+.3f} ± {error:.3f}"


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
    assert said in read("README.md").replace("\n ", "")


@pytest.mark.parametrize(
    ("number", "row", "reference", "words"),
    [
        (2, "pruned from intermediate, restarted", "pruned from intermediate, resumed",
         "**contradicted**: restarted minus resumed is {}"),
        (5, "enlarged 5.3 times", "from scratch, the same tokens",
         "**contradicted**: none does; 5.3× is worse by {}"),
        (6, "enlarged 50%, pruning 70% of the rest", "f1 = mean, f2 = max",
         "**contradicted**: 70% minus 50% is {}"),
        (1, "sensitivity, integrated (IDEA)", "from scratch, the same tokens",
         "**not seen**: {}"),
        (4, "pruning with distillation", "pruning without distillation",
         ", {} together"),
    ],
)  # fmt: skip
def test_claims_of_the_paper_are_held_against_the_tables(number, row, reference, words):
    scale = "tiny" if number < 4 else "mini"
    table = json.loads((PAPER / f"{scale}-table-{number}.json").read_text())
    one, other = (
        next(r["values"] for r in table["rows"] if r["name"] == name)
        for name in (row, reference)
    )
    mean, error, count = difference(one, other)
    page = read("docs/when_does_it_pay.md")
    assert words.format(f"{mean:+.4f} ± {error:.4f}") in page and count == 5
    assert ("not seen" in words) == (p_value(mean, error, count) >= 0.05)


def test_the_readme_s_step_times_are_the_range_over_whole_models():
    """Of each model, shape and backend the newest record."""
    records = [
        (json.loads(path.read_text()), path.stem)
        for path in RESULTS.glob("step_cost*.json")
        if "ffns" not in path.stem
    ]
    newest = {}
    for record, stem in sorted(records, key=lambda found: found[0]["date"]):
        for shape, of_shape in record["step"].items():
            newest["llama3" in stem, shape, stem.rpartition("-")[2]] = of_shape
    found = {backend: [] for backend in BACKENDS}
    for (*_, backend), of_shape in newest.items():
        found[backend] += [
            ratio["median"]
            for name, ratio in of_shape["ratios"].items()
            if name.startswith("pruning")
        ]
    every = [ratio for ratios in found.values() for ratio in ratios]
    ends = [(f"{min(r):.2f}", f"{max(r):.2f}") for r in (every, *found.values())]
    said = ["–".join(dict.fromkeys(both)) for both in ends]
    for page in ("README.md", "docs/speed.md"):
        told = re.search(
            r"takes (\S+)× as long as a step of the plain wide model "
            r"\(eager PyTorch (\S+), JAX (\S+), TensorFlow (\S+)\)",
            " ".join(read(page).split()),
        )
        assert list(told.groups()) == said


def test_what_a_checkpoint_loses_is_that_of_the_recorded_bits():
    known = json.loads((RESULTS / "recover_checkpoint.json").read_text())["bits"]
    page = read("benchmarks/results/recover_checkpoint.md")
    for width, method, *told in rows_of(page, "FFN width | method | pruned at once"):
        for text, after in zip(told, ("nothing", "text", "teacher"), strict=True):
            start = f"{width.split()[0]}-{method}-{after}-"
            values = [bits for key, bits in known.items() if key.startswith(start)]
            error = scipy.stats.sem(values)
            assert text == f"{np.mean(values):.4f} ± {error:.4f}" and len(values) == 3
    factor = scipy.stats.t.ppf(0.975, 2)
    assert (
        f"n = 3 paired seeds; the 95% confidence interval is the mean ± {factor:.2f}"
        in page
    )


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


def test_the_size_of_the_text_is_the_recorded_one():
    size = json.loads((PAPER / "map/map.json").read_text())["text bytes"]
    assert f"train on {size / 1e6:.2f} MB" in TEXT_NOTE
