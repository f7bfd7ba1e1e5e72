"""What a plan says of runs like it, against the map that was measured."""

import dataclasses
import json
import pathlib

import pytest

from keras_idea.runs.evidence import measured, shares, standing

RESULTS = pathlib.Path(__file__).parents[2] / "benchmarks/results/paper"
MAP = RESULTS / "map/map.json"


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
    head, *lines = standing(first.budget * 1.05, first.enlargement * 1.02, 0.5)
    lines = [line for line in lines if "training the narrow model" in line]
    assert f"{first.budget} tokens, {first.enlargement:.3g} times" in head
    assert len(lines) in (2, 4)
    assert all("rewarmed" in line for line in lines[2:])
    assert f"{first.mean:+.4f} ± {first.error:.4f}" in lines[0]
    words = {"wins": "beat", "loses": "lost to", "not told apart": "not told apart"}
    assert words[first.verdict] in lines[0] and "same FLOPs" in lines[1]


def test_the_shares_are_those_of_the_study_and_the_nearest_are_told():
    known = json.loads((RESULTS / "shares/shares.json").read_text())
    assert [dataclasses.asdict(share) for share in shares()] == known
    for place in known:
        lines = standing(place["budget"] * 1.05, 2.0, 0.625)
        assert any("62% of the steps" in line for line in lines)
        assert any(f"at {place['budget']} tokens, 2.67 times" in line for line in lines)
        [line] = [x for x in lines if x.startswith(f"    {place['share']:.0%}: ")]
        words = {"half": "50%", "tokens": "scratch", "flops": "for the same FLOPs"}
        told = f"{place['mean']:+.4f} ± {place['error']:.4f} "
        assert told in line and words[place["against"]] in line


@pytest.mark.parametrize("budget, enlargement", [(2.0, 2.0), (1e5, 2.0), (90, 40.0)])
def test_outside_the_map_is_said(budget, enlargement):
    assert "outside what was measured" in standing(budget, enlargement, 0.5)[-1]


def test_what_is_not_enlarged_is_not_on_the_map():
    assert standing(100, 1.0, 0.5) == []
