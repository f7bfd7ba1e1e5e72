"""How long to stay enlarged: a small study carried out."""

import dataclasses
import json
import statistics

import numpy as np
import pytest

from benchmarks.paper import shares as command
from benchmarks.paper.plan import plan
from benchmarks.paper.shares import STUDY, Study
from tests.paper.paper_micro import MICRO

SMALL = Study(
    dataclasses.replace(MICRO, total_steps=8, curve_points=1), 1.5, {1: 0.5}, (0.25,)
)


def test_all_lengths_are_the_map_s_and_shares_are_of_their_steps():
    for budget in STUDY.peaks:
        for share in (*STUDY.shares, command.USUAL):
            enlarge, *rest = plan(STUDY.cell(budget, share), STUDY.scale)
            total = enlarge.steps + sum(stage.steps for stage in rest)
            assert total == STUDY.scale.total_steps * budget
            assert enlarge.steps == pytest.approx(share * total, abs=1)
            assert enlarge.rate.total == total


def test_a_study_is_carried_out_and_resumed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    (tmp_path / "text.txt").write_bytes(rng.integers(97, 105, 4000).astype("uint8"))
    arguments = ["--seeds", "2", "--text", str(tmp_path / "text.txt")]
    arguments += ["--output", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    arguments += ["--evidence", str(tmp_path / "plan.json")]
    assert command.main(arguments, SMALL) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    cells = sorted((tmp_path / "out/cells").glob("*.json"))
    before = [path.read_bytes() for path in cells]
    assert command.main(arguments, SMALL) == 0
    assert before == [path.read_bytes() for path in cells] and len(cells) == 2
    gaps = []
    for path in cells:
        usual, early = (
            next(
                record["bits_per_byte"]
                for record in json.loads(path.read_text()).values()
                if record["cell"].get("enlarge_share", 0.5) == share
            )
            for share in (0.5, 0.25)
        )
        gaps.append(early - usual)
    [fact] = json.loads((tmp_path / "plan.json").read_text())
    assert (fact["budget"], fact["share"], fact["count"]) == (1, 0.25, 2)
    assert fact["mean"] == pytest.approx(statistics.fmean(gaps), abs=1e-12)
    error = statistics.stdev(gaps) / 2**0.5
    assert fact["error"] == pytest.approx(error, abs=1e-12) and error > 0
    table = (tmp_path / "out/shares.md").read_text()
    assert f"{fact['mean']:+.4f} ± {fact['error']:.4f}" in table
