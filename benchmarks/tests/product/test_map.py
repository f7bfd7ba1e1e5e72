"""The map: its law, its statistics, and a small one carried out."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats

from benchmarks.intervals import estimate
from benchmarks.paper.build import new_model
from benchmarks.paper.map import __main__ as command
from benchmarks.paper.map.arms import IDEA, MAP, SAME_FLOPS_ARM, Arm, Grid
from benchmarks.paper.map.findings import Place
from benchmarks.paper.map.law import fit
from benchmarks.paper.map.rates import best_peak
from benchmarks.paper.map.sizes import average_parameters, parameters
from benchmarks.paper.plan import plan
from tests.support.paper_micro import MICRO

SMALL = Grid(
    scale=dataclasses.replace(MICRO, total_steps=4, curve_points=1),
    budgets=(1, 3),
    enlargements=(1.5, 2.0),
    peaks=(1.0,),
    swept=(1, 3),
    sweep_seeds=(100,),
)


def test_the_law_is_found_again():
    N, D = (a.ravel() for a in np.meshgrid([2e4, 4e4, 6e4], [3e5, 1e6, 4e6, 1e7]))
    loss = 1.2 + 3.0 * (N / 1e4) ** -0.4 + 0.5 * (D / 1e6) ** -0.6
    law = fit(N, D, loss)
    np.testing.assert_allclose(law(N, D), loss, atol=1e-5)
    assert (law.a, law.b) == pytest.approx((0.4, 0.6), abs=0.02)
    # Between the sizes that it was fitted on.
    expected = 1.2 + 3.0 * 3.0**-0.4 + 0.5 * 2.0**-0.6
    assert law(3e4, 2e6) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("width", [64, 171])
def test_parameters_are_those_of_keras(width):
    assert parameters(MAP.scale, width) == new_model(MAP.scale, width).count_params()


def test_parameters_of_a_pruned_run():
    arm = Arm(kind=IDEA, enlargement=2.0, budget=10)
    average = average_parameters(arm.cell(1.0), MAP.scale)
    wide, narrow = (parameters(MAP.scale, width) for width in (128, 64))
    # Half of the steps wide; a quarter on the cubic way down, whose mean is a quarter
    # of what goes; a quarter narrow.
    expected = narrow + (0.5 + 0.25 * 0.25) * (wide - narrow)
    assert average == pytest.approx(expected, rel=0.005)


def test_scratch_of_the_same_flops_follows_the_pruned_budget():
    short, long = (
        plan(Arm(kind=SAME_FLOPS_ARM, enlargement=4.0, budget=b).cell(1.0), MAP.scale)
        for b in (10, 20)
    )
    assert long[0].steps == pytest.approx(2 * short[0].steps, abs=2)
    assert short[0].steps > 1.3 * 10 * MAP.scale.total_steps


def test_the_best_peak_is_the_parabolas():
    bits = [3.0, 2.5, 2.4, 2.6, 4.0]
    lowest = np.polynomial.Polynomial.fit([1, 2, 3], bits[1:4], 2).deriv().roots()[0]
    assert best_peak([1, 2, 4, 8, 16], bits) == pytest.approx(2.0**lowest)
    assert best_peak([1, 2, 4], [2.0, 2.1, None]) == 1.0


@pytest.mark.parametrize("shift", [-0.02, -0.001, 0.02])
def test_verdicts_are_the_t_tests(shift):
    values = shift + 0.01 * np.random.default_rng(0).standard_normal(5)
    place = Place(10, 1.5, "tokens", estimate(values), None)
    told = scipy.stats.ttest_1samp(values, 0.0).pvalue < 0.05
    expected = ("wins" if values.mean() < 0 else "loses") if told else "not told apart"
    assert place.verdict == expected


def test_what_could_be_seen_is_seen_four_times_of_five():
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(2000):
        noise = rng.standard_normal(5)
        # The power is of the true error, not of the one found.
        true = dataclasses.replace(estimate(noise), error=1 / np.sqrt(5))
        shift = Place(1, 1.5, "tokens", true, None).seen
        seen.append(scipy.stats.ttest_1samp(noise + shift, 0.0).pvalue < 0.05)
    assert np.mean(seen) == pytest.approx(0.8, abs=0.04)


def test_a_map_is_carried_out_and_resumed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_bytes(rng.integers(97, 105, 4000).astype("uint8"))
    arguments = ["--seeds", "2", "--text", str(tmp_path / "text.txt")]
    arguments += ["--output", str(tmp_path / "map"), "--runs", str(tmp_path / "runs")]
    assert command.main(arguments, SMALL) == 0
    first = capsys.readouterr().out.splitlines()
    # 6 arms are searched; 14 arms and 4 wide ones, and three files a seed and
    # at the end.
    assert len(first) == 6 + 2 * 18 + 3 * 3
    files = {p: p.read_bytes() for p in (tmp_path / "map").rglob("*.*")}
    # One cell is lost: it alone is carried out, and gives the same number.
    path = tmp_path / "map/cells/seed-1.json"
    records = json.loads(path.read_text())
    lost = next(key for key, r in records.items() if r["cell"].get("flops_of") == 3.0)
    bits = records.pop(lost)["bits_per_byte"]
    path.write_text(json.dumps(records))
    assert command.main(arguments, SMALL) == 0
    again = capsys.readouterr().out.splitlines()
    assert len(again) == 1 + 3 * 3
    assert any(f"{bits} bits per byte" in line for line in again)
    assert json.loads(path.read_text())[lost]["bits_per_byte"] == bits
    facts = json.loads((tmp_path / "map/map.json").read_text())
    assert len(facts["places"]) == 2 * 2 * 2 * 2 and len(facts["law's errors"]) == 4
    assert all(place["verdict"] != "not run" for place in facts["places"])
    text = files[tmp_path / "map/map.md"].decode()
    # A line a place, and one of how many of them show something.
    assert text.count("equal FLOPs |") == 2 * 4 + 2 and str(tmp_path) not in text
    cpus = {record["versions"]["cpu"] for record in records.values()}
    assert len(cpus) == 1 and cpus != {""}
    png = files[tmp_path / "map/map.png"]
    assert png[:4] == b"\x89PNG" and len(png) > 10_000
