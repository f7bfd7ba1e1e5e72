"""The comparison with other libraries: its task, its turns and its tables."""

import dataclasses

import numpy as np
import pytest

from benchmarks.peers import child, tables, task
from benchmarks.peers.lines import count_lines
from benchmarks.peers.measure import check_pruned, measure
from benchmarks.peers.moments import compare
from benchmarks.peers.registry import PEERS
from benchmarks.peers.turns import Clock, carry_out
from benchmarks.peers.venvs import HERE, requirements

SHAPE = dataclasses.replace(task.SHAPES["small"], hidden_dim=8, target_dim=4)


def test_everyone_is_given_the_same():
    for first, second in zip(task.make_batches(3), task.make_batches(3), strict=True):
        np.testing.assert_array_equal(first, second)
    contexts, targets = task.make_batches(2)
    assert contexts.shape == (2, 2048, 8) and targets.shape == (2, 2048)
    wide, again = (task.initial_weights(SHAPE, 8) for _ in range(2))
    np.testing.assert_array_equal(wide["head"], again["head"])
    assert [block["down"].shape for block in wide["blocks"]] == [(8, 64)] * 2


def test_the_target_follows_its_context():
    text = task.find_text()
    contexts, targets = task.make_batches(1)
    seen = bytes([*contexts[0, 0].tolist(), int(targets[0, 0])])
    assert seen in text.tobytes()


def test_stages_follow_the_turns():
    shape = SHAPE.with_turns(2)
    assert (shape.steps, shape.end_step) == (30, 20)
    assert SHAPE.with_turns(None) == SHAPE


def test_runs_take_turns():
    order = []

    def run(name, clock):
        for step in range(4):
            order.append(name)
            clock.step(step, 10)
        return name

    def fail(clock):
        clock.step(0, 10)
        raise ValueError("first line\nRealError: so it is\nlast line")

    runs = {name: lambda clock, name=name: run(name, clock) for name in "ab"}
    done = carry_out({**runs, "bad": fail}, steps_per_turn=2)
    assert "".join(order) == "aabbaabb"
    clock, result = done["a"]
    assert result == "a" and clock.losses == [0, 1, 2, 3] and len(clock.cpu) == 4
    assert child.last_line(done["bad"][0].error) == "RealError: so it is"


@pytest.fixture
def row():
    """What is measured of a run that is narrow from step 20 on, twice as fast."""
    shape = SHAPE.with_turns(2)

    def clock(seconds, widths):
        made = Clock(shape.steps_per_turn)
        made.cpu = made.wall = [seconds] * shape.steps
        made.losses, made.widths = [2.0] * shape.steps, widths
        return made

    weights = {name: np.ones((4, 3)) for name in ("gate", "up", "down")}
    weights["up"][0] = 0
    peer = clock(1.0, [8] * 15 + [6] * 5 + [4] * 10)
    wide, narrow = clock(2.0, [8] * 30), clock(0.5, [4] * 30)
    return measure(shape, [peer], [weights] * 2, [wide], [narrow])


def test_what_is_read_off_a_run(row):
    assert row["ratios"]["pruning / wide"]["median"] == 0.5
    assert row["ratios"]["afterwards / narrow"]["median"] == 2.0
    assert row["whole run"]["peer"] == {"cpu": 30.0, "wall": 30.0}
    assert (row["half way at step"], row["narrow at step"]) == (16, 21)
    assert row["widths"] == [4, 4] and row["living"] == [3, 3]
    assert row["zeros"] == pytest.approx([1 / 12] * 2)


def test_who_prunes_nothing_gets_no_row():
    """All neurons and no zero: such a peer would be the quickest of all."""
    whole = {name: np.ones((8, 3)) for name in ("gate", "up", "down")}
    with pytest.raises(RuntimeError, match="FFN 1 was not pruned"):
        check_pruned(
            [{name: values[:4] for name, values in whole.items()}, whole], SHAPE
        )
    zeroed = {**whole, "gate": np.where(np.arange(8)[:, None] < 4, 0.0, 1.0)}
    check_pruned([zeroed], SHAPE)


def test_tables_hold_rows_and_errors(row):
    moments = {"moments": "lost", "difference": None, "trained on": True}
    plain = {"last loss": 2.0}
    result = {
        "shape": dataclasses.asdict(SHAPE),
        "versions": {"fasterai": "0.4.1"},
        "plain": {"wide": plain, "narrow": plain},
        "rows": {
            "it": {**row, "moments": moments, "lines": 3, "how": "so"},
            "not": {"error": "why | not", "how": "as"},
        },
    }
    broken = {"small": {"error": "no such wheel"}}
    *made, ways = tables.make_tables({"fasterai": {"small": result}, "tfmot": broken})
    assert ways["rows"] == [["fasterai 0.4.1: it", "so"], ["fasterai 0.4.1: not", "as"]]
    for table in made:
        first, second, third = table["rows"]
        assert all(len(cells) == len(table["columns"]) for cells in table["rows"])
        assert first[0] == "fasterai 0.4.1: it"
        assert second[1] == "error: why / not"
        assert third[:2] == ["tfmot", "error: no such wheel"]
    assert "8 -> 4" in made[0]["title"]


def state(weights, moments):
    names = ("gate", "up", "down")
    return [
        {
            "weights": dict.fromkeys(names, weights),
            "moments": dict.fromkeys(names, moments),
        }
    ]


def test_moments_of_the_same_neurons_are_compared():
    weights = np.arange(12.0).reshape(4, 3)
    before, later = state(weights, [weights, weights]), state(weights[:2] + 1, None)
    left, other = weights[[3, 1]], weights[[1, 3]]
    after = state(left, [left, left])
    assert compare(before, after, later)["moments"] == "kept, exactly"
    assert compare(before, state(left, [other, other]), later)["difference"] == 6
    assert compare(before, state(left, None), later)["moments"] == "lost"
    assert compare(before, before, later)["moments"] == "nothing is cut, they stay"
    reset = state(weights, [0 * weights, 0 * weights])
    assert compare(before, reset, later)["moments"] == "nothing is cut, they are reset"
    assert not compare(before, after, after)["trained on"]


def test_lines_are_counted(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import a  # user\nimport b\n# user\n# why\nx = 1\n\ny = 2\n# end\n"
        "z = 3\n# user: one, two\nw = 4\n# end\nv = 5  # user: two\n"
    )
    counts = {name: count_lines(script, name) for name in ("one", "two", "three")}
    assert counts == {"one": 4, "two": 5, "three": 3}


def test_each_peer_has_its_two_files():
    for peer in PEERS.values():
        assert (HERE / f"{peer.script}.py").exists()
        assert requirements(peer.script)
    assert "here" in requirements("jaxpruner", "here").splitlines()
