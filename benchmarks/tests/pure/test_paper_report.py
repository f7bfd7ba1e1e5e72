"""Means, standard errors and paired differences, by hand; figures that show them."""

import json
import math

import numpy as np
import pytest
from matplotlib.image import imread

from benchmarks.intervals import Estimate, estimate
from benchmarks.paper.paper_figures import (
    Curve,
    draw_curves,
    draw_differences,
    draw_heat_map,
    draw_sizes,
)
from benchmarks.paper.paper_table import (
    SeededRow,
    paired_difference,
    to_json,
    to_markdown,
)

SCRATCH = SeededRow("scratch", {0: 2.20, 1: 2.26, 2: 2.17}, None, 192, 3_072_000,
                    2_500_000_000_000, 60.4)  # fmt: skip
PRUNED = SeededRow("pruned", {0: 2.15, 1: 2.20, 3: 2.00}, "scratch")


def test_mean_and_standard_error():
    values = [2.20, 2.26, 2.17]
    assert estimate(values) == Estimate(
        pytest.approx(np.mean(values)),
        pytest.approx(np.std(values, ddof=1) / np.sqrt(3)),
        3,
    )
    assert estimate([1.5]) == Estimate(1.5, None, 1)
    assert estimate([None, math.nan, math.inf]) is None
    assert estimate([None, 1.0, 3.0]) == Estimate(2.0, pytest.approx(1.0), 2)


def test_differences_are_paired_by_seed():
    """Only seeds 0 and 1 are in both: -0.05 and -0.06."""
    gap = paired_difference(PRUNED, SCRATCH)
    assert gap.count == 2 and gap.mean == pytest.approx(-0.055)
    assert gap.error == pytest.approx(0.005)
    assert paired_difference(PRUNED, SeededRow("other", {7: 1.0})) is None


def test_the_table_as_markdown():
    rows = [SCRATCH, PRUNED, SeededRow("diverged", {0: None}, "scratch"),
            SeededRow("half", {0: None, 1: 2.0}), SeededRow("not yet", {})]  # fmt: skip
    text = to_markdown("Table 1", rows, ["A note."])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1 and len(lines) == 7
    cells = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in lines
    }
    assert cells["scratch"] == ["2.2100 ± 0.0265", "3", "-", "192", "3.07", "2.5", "60"]
    assert cells["pruned"][:3] == ["2.1167 ± 0.0601", "3", "-0.0550 ± 0.0050"]
    assert cells["diverged"][0] == "diverged" and cells["not yet"][0] == "-"
    assert cells["half"][0] == "2.0000 (1 diverged)"
    assert text.startswith("# Table 1\n") and text.endswith("A note.\n")
    assert "Reference: scratch." in text


def test_the_table_as_json():
    table = json.loads(to_json("Table 1", [SCRATCH, PRUNED], {"scale": "tiny"}))
    assert table["scale"] == "tiny"
    assert table["rows"][1]["difference"]["mean"] == pytest.approx(-0.055)
    assert table["rows"][0]["mean"]["count"] == 3
    assert table["rows"][0]["difference"] is None


def test_figures_show_something(tmp_path):
    steps = list(range(5, 105, 5))
    curve = Curve("one", steps, [3 - s / 100 for s in steps], [0.1] * 20, [50, 100])
    draw_curves(tmp_path / "curves.png", [curve, curve], "Curves")
    draw_sizes(tmp_path / "sizes.png", [(1.0, SCRATCH), (2.0, PRUNED)], SCRATCH,
               "Sizes", "size", "scratch")  # fmt: skip
    grid = {("a", "x"): Estimate(-0.1, 0.01, 2), ("a", "y"): Estimate(0.1, None, 1),
            ("b", "x"): None, ("b", "y"): Estimate(0.0, 0.01, 2)}  # fmt: skip
    draw_heat_map(tmp_path / "map.png", grid, "Map", "rows", "columns")
    assert draw_differences(tmp_path / "gaps.png", [SCRATCH, PRUNED], "Differences")
    assert not draw_differences(tmp_path / "none.png", [SCRATCH], "Nothing to compare")
    assert not (tmp_path / "none.png").exists()
    for name in ("curves", "sizes", "map", "gaps"):
        picture = imread(tmp_path / f"{name}.png")[..., :3]
        assert picture.shape[0] > 200 and picture.std() > 0.02
