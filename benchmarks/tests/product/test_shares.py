"""How long to stay enlarged: a small study carried out."""

import dataclasses
import json
import statistics

import numpy as np
import pytest

from benchmarks.paper import shares as command
from benchmarks.paper.flops import stage_flops
from benchmarks.paper.plan import plan
from benchmarks.paper.shares import STUDY, Study
from tests.support.paper_micro import MICRO

SMALL = Study(
    dataclasses.replace(MICRO, total_steps=8, curve_points=1),
    1.5,
    {1: (0.5, 1.0)},
    (0.25, 0.5),
)


def test_all_lengths_are_the_map_s_and_shares_are_of_their_steps():
    for budget, share, against in STUDY.comparisons():
        enlarge, *rest = plan(STUDY.pruned(budget, share), STUDY.scale)
        total = enlarge.steps + sum(stage.steps for stage in rest)
        assert total == STUDY.scale.total_steps * budget
        assert enlarge.steps == pytest.approx(share * total, abs=1)
        assert enlarge.rate.total == total
        rival = plan(STUDY.rival(budget, share, against), STUDY.scale)
        steps = sum(stage.steps for stage in rival)
        if against == "flops":
            paid = sum(stage_flops(stage, STUDY.scale) for stage in (enlarge, *rest))
            spent = sum(stage_flops(stage, STUDY.scale) for stage in rival)
            assert spent <= paid < spent + spent / steps and steps > total
        else:
            assert steps == total


def test_a_study_is_carried_out_and_resumed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_bytes(rng.integers(97, 105, 4000).astype("uint8"))
    arguments = ["--seeds", "2", "--text", str(tmp_path / "text.txt")]
    arguments += ["--output", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    assert command.main(arguments, SMALL) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2 * 5
    cells = sorted((tmp_path / "out/cells").glob("*.json"))
    before = [path.read_bytes() for path in cells]
    assert command.main(arguments, SMALL) == 0
    assert before == [path.read_bytes() for path in cells] and len(cells) == 2
    found = {name: [] for name in ("half", "early", "tokens", "flops")}
    for path in cells:
        for record in json.loads(path.read_text()).values():
            cell, share = record["cell"], record["cell"].get("enlarge_share", 0.5)
            if cell.get("pipeline") != "scratch":
                name = {0.5: "half", 0.25: "early"}[share]
            elif cell.get("budget") != "flops":
                name = "tokens"
            elif share == 0.25:
                name = "flops"
            else:
                continue
            found[name].append(record["bits_per_byte"])
    facts = json.loads((tmp_path / "out/shares.json").read_text())
    table = (tmp_path / "out/shares.md").read_text()
    early = {fact["against"]: fact for fact in facts if fact["share"] == 0.25}
    assert len(facts) == 5 and list(early) == ["half", "tokens", "flops"]
    for against, fact in early.items():
        pairs = zip(found["early"], found[against], strict=True)
        gaps = [own - other for own, other in pairs]
        assert fact["mean"] == pytest.approx(statistics.fmean(gaps), abs=1e-12)
        error = statistics.stdev(gaps) / 2**0.5
        assert fact["error"] == pytest.approx(error, abs=1e-12) and error > 0
        assert f"{fact['mean']:+.4f} ± {fact['error']:.4f}" in table
