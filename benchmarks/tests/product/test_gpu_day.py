"""The script of a day with a GPU, at micro scale on a CPU."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT


def carry_out(folder, *more):
    words = ["--scale", "micro", "--output", str(folder), "--minutes", "20", *more]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_day", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(": ", 1) for line in ended.stdout.splitlines())


@pytest.mark.daily()
def test_pieces_are_measured_once(tmp_path):
    names = [
        "steps-tiny-torch-eager",
        "whole-tiny-jax-end",
        "whole-tiny-torch-progressive",
    ]
    assert carry_out(tmp_path, "--list") == dict.fromkeys(names, "to do")
    assert carry_out(tmp_path) == dict.fromkeys(names, "done")
    written = {name: tmp_path / f"{name}.json" for name in names}
    assert sorted(tmp_path.iterdir()) == sorted(written.values())
    read = [json.loads(path.read_text()) for path in written.values()]
    steps, end, progressive = read
    assert set(steps["ratios"]) == {
        "pruning + callback / wide",
        "compacted in place / built narrow",
    }
    widths = [[step["neurons"] for step in run["steps"]] for run in (end, progressive)]
    # 8 steps wide and 12 that prune: of 64 neurons 24 are left.
    assert widths[0] == 20 * [64] + 12 * [24]
    assert len(set(widths[1])) > 2 and widths[1][-1] == 24
    for run in (end, progressive):
        assert run["versions"]["keras"] and run["hardware"]["cores"]
        assert run["summary"]["narrow"]["seconds a step"] > 0
    assert carry_out(tmp_path, "--minutes", "0") == dict.fromkeys(names, "done")
