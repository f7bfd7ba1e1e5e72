"""What a plan says of runs like it, against the map that was measured."""

import json
import pathlib

import pytest

from keras_idea.runs.evidence import measured, standing

MAP = pathlib.Path(__file__).parents[2] / "benchmarks/results/paper/map/map.json"


def test_the_evidence_is_the_map():
    places = [
        place
        for place in json.loads(MAP.read_text())["places"]
        if place["verdict"] != "not run"
    ]
    assert len(places) == len(measured()) > 0
    for place, kept in zip(places, measured(), strict=True):
        assert (place["budget"], place["against"]) == (kept.budget, kept.against)
        assert place["enlargement"] == pytest.approx(kept.enlargement, abs=1e-3)
        assert place["difference"]["mean"] == pytest.approx(kept.mean, abs=1e-4)
        assert place["difference"]["error"] == pytest.approx(kept.error, abs=1e-4)
        assert place["verdict"] == kept.verdict
        assert (place["way"] == "rewarmed") == kept.rewarmed


def test_the_nearest_place_is_told():
    first = measured()[0]
    head, *lines = standing(first.budget * 1.05, first.enlargement * 1.02)
    assert f"{first.budget} tokens, {first.enlargement:.3g} times" in head
    assert len(lines) in (2, 4)
    assert all("rewarmed" in line for line in lines[2:])
    assert f"{first.mean:+.4f} ± {first.error:.4f}" in lines[0]
    words = {"wins": "beat", "loses": "lost to", "not told apart": "not told apart"}
    assert words[first.verdict] in lines[0] and "same FLOPs" in lines[1]


@pytest.mark.parametrize("budget, enlargement", [(2.0, 2.0), (1e5, 2.0), (90, 40.0)])
def test_outside_the_map_is_said(budget, enlargement):
    assert "outside what was measured" in standing(budget, enlargement)[-1]


def test_what_is_not_enlarged_is_not_on_the_map():
    assert standing(100, 1.0) == []
