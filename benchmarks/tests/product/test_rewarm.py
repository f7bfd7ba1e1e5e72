"""Resumed or rewarmed: the learning rates, and a small study carried out."""

import dataclasses
import json
import statistics

import numpy as np
import pytest

from benchmarks.paper import rewarm as command
from benchmarks.paper.plan import plan
from benchmarks.paper.rewarm import STUDY, WAYS, Place, Study
from benchmarks.paper.scale import SCALES
from tests.support.paper_micro import MICRO

SMALL = Study(
    scale=dataclasses.replace(MICRO, total_steps=4, curve_points=1),
    middle=Place(1, 1.5, 0.5),
    budgets=(1,),
    enlargements=(1.5,),
    peaks=(0.5, 1.0),
    shares=(0.5, 0.75),
)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_rewarmed_rate_is_a_curve_of_its_own_for_an_optimizer_that_goes_on(share):
    scale = SCALES["tiny"]
    resumed, rewarmed = (
        plan(Place(1, 8 / 3, 2.0).cell(*way), scale)
        for way in (("resumed",), ("rewarmed", share))
    )
    assert resumed[0] == rewarmed[0] and not rewarmed[1].fresh
    schedule = rewarmed[1].rate.schedule(750)
    rates = [float(schedule(750 + i)) for i in range(750)]
    peak, end, t = 2 * share * 3e-3, 2 * 3e-5, np.arange(1, 751)
    cosine = (peak - end) / 2 * np.cos(np.pi * (t - 50) / 750) + (peak + end) / 2
    expected = np.where(t <= 50, peak * t / 50, cosine)
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_a_rewarmed_run_prunes_after_its_warm_up_or_at_once():
    scale = SCALES["tiny"]
    place = Place(1, 8 / 3, 1.0)
    resumed, late, at_once = (
        plan(place.cell(*way), scale)[1]
        for way in (("resumed",), ("rewarmed", 1.0), ("rewarmed", 1.0, False))
    )
    assert (late.pruning.begin, late.pruning.end) == (50, 50 + 375)
    assert (at_once.pruning.begin, at_once.pruning.end) == (0, 375)
    assert at_once.pruning == resumed.pruning
    assert at_once.rate == late.rate != resumed.rate


def test_places_are_distinct_and_share_their_enlarged_stage():
    places = STUDY.places()
    assert len(set(places)) == len(places) == 4 * 3 + 3 + 2
    for place in places:
        firsts = {plan(place.cell(*way), STUDY.scale)[0] for way in WAYS.values()}
        assert firsts == {plan(place.cell(), STUDY.scale)[0]}


def test_a_study_is_carried_out_and_resumed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_bytes(rng.integers(97, 105, 4000).astype("uint8"))
    arguments = ["--seeds", "2", "--text", str(tmp_path / "text.txt")]
    arguments += ["--output", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    assert command.main(arguments, SMALL) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * 3
    cells = tmp_path / "out/cells"
    before = {path: path.read_bytes() for path in cells.glob("*.json")}
    assert command.main(arguments, SMALL) == 0
    assert before == {path: path.read_bytes() for path in cells.glob("*.json")}
    facts = json.loads((tmp_path / "out/rewarm.json").read_text())
    assert len(facts) == 3
    first = facts[0]
    assert first["restarted"]["mean"] != first["rewarmed to 100 %"]["mean"] != 0.0
    # The first place's own numbers, found another way.
    ways = {}
    for path in before:
        for record in json.loads(path.read_text()).values():
            cell = record["cell"]
            place = cell["hidden"], cell.get("peak"), cell.get("enlarge_share")
            if place == (1.5, 0.5, None):
                name = cell["learning_rate"], cell.get("restart", 1.0)
                name += () if cell.get("wait", True) else (False,)
                ways.setdefault(name, []).append(record["bits_per_byte"])
    for name, way in WAYS.items():
        expected = statistics.fmean(ways[way]) - statistics.fmean(ways["resumed", 1.0])
        assert first[name]["mean"] == pytest.approx(expected, abs=1e-9)
    assert (tmp_path / "out/rewarm.png").read_bytes()[:4] == b"\x89PNG"
