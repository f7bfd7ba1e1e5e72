"""Figures on pages are those of the records, which are computed here another way."""

import json
import re

import numpy as np
import pytest
import scipy.stats

from benchmarks.pages import __main__ as pages
from benchmarks.pages.blocks import by_hand, fill, names
from benchmarks.paper.study import TEXT_NOTE
from tests.support.recorded import (
    PAPER,
    RESULTS,
    difference,
    p_value,
    read,
    rows_of,
)

BACKENDS = ("torch", "jax", "tensorflow")
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


@pytest.mark.parametrize("page", pages.PAGES)
def test_a_figure_that_is_changed_is_put_right(page):
    """So `stale` would name the page."""
    text = read(page)
    place = text.index("records: ")
    figure = re.compile(r"\d\.\d\d+").search(text, place)
    wrong = text[: figure.start()] + "9.999" + text[figure.end() :]
    assert fill(wrong, pages.BLOCKS) == text != wrong


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
    for backend in ("jax-auto", "torch-eager"):
        name = f"gpu_day/steps-paper-1.3b-layer-{backend}.json"
        ratios = json.loads((RESULTS / name).read_text())["ratios"]
        said.append(f"{ratios['pruning + callback / wide']['median']:.2f}")
    for page in ("README.md", "docs/speed.md"):
        told = re.search(
            r"takes (\S+)× as long as a step of the plain wide model on CPUs "
            r"\(eager PyTorch (\S+), JAX (\S+), TensorFlow (\S+)\), "
            r"and of two large layers (\S+)× \(JAX\) and (\S+)× \(eager PyTorch\)",
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


def test_the_size_of_the_text_is_the_recorded_one():
    size = json.loads((PAPER / "map/map.json").read_text())["text bytes"]
    assert f"train on {size / 1e6:.2f} MB" in TEXT_NOTE
