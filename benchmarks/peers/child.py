"""What every peer's script does in its own environment: measure, and write JSON.

NumPy is the only package that is imported here.
"""

import argparse
import dataclasses
import functools
import importlib.metadata
import json
import pathlib
from collections.abc import Callable

from benchmarks.peers.lines import count_lines
from benchmarks.peers.measure import curve, measure
from benchmarks.peers.task import SHAPES
from benchmarks.peers.turns import carry_out


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to use a peer: a row of the tables.

    Args:
        how: str, what was done, in words.
        train: function of a `Shape` and a `Clock`: the whole run, with a call of
            `clock.step` after each step; returns the weights of each FFN at the end,
            dicts of "gate", "up" and "down", `(neurons, dim)` each.
        moments: function of a `Shape`: what `moments.compare` returns.
    """

    how: str
    train: Callable
    moments: Callable


def main(script, plain, ways, packages):
    """Measures all ways of a peer beside the plain models, in turns.

    Args:
        script: path of the peer's script, whose marked lines are counted.
        plain: function of a `Shape`, a width and a `Clock`: trains the plain model of
            that width.
        ways: dict of label to `Way`.
        packages: list of str, whose versions are noted.
    """
    arguments = _parse_arguments()
    shape = SHAPES[arguments.shape].with_turns(arguments.turns)
    widths = {"wide": shape.hidden_dim, "narrow": shape.target_dim}
    plains = {
        name: functools.partial(plain, shape, width) for name, width in widths.items()
    }
    _warm_up(plain, shape)
    runs = {label: functools.partial(way.train, shape) for label, way in ways.items()}
    rounds = [
        carry_out(plains | runs, shape.steps_per_turn) for _ in range(shape.rounds)
    ]
    clocks = {name: [done[name][0] for done in rounds] for name in rounds[0]}
    for name in plains:
        if clocks[name][0].error is not None:
            raise clocks[name][0].error
    rows = {
        label: {
            "how": way.how,
            "lines": count_lines(script, label),
            **_row(shape, way, label, clocks, rounds[0][label][1]),
        }
        for label, way in ways.items()
    }
    result = {
        "shape": dataclasses.asdict(shape),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "plain": {name: curve(clocks[name][0]) for name in plains},
        "rows": rows,
    }
    pathlib.Path(arguments.output).write_text(json.dumps(result))


def _row(shape, way, label, clocks, ffns):
    """What was measured of one way, or the error that ended it."""
    if clocks[label][0].error is not None:
        return {"error": last_line(clocks[label][0].error)}
    return {
        "moments": way.moments(SHAPES["small"].with_turns(1)),
        **measure(shape, clocks[label], ffns, clocks["wide"], clocks["narrow"]),
    }


def last_line(error):
    """The last line of an exception's text that names an error, or its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line]
    return named[-1] if named else f"{type(error).__name__}: {' '.join(lines[-1:])}"


def _parse_arguments():
    parser = argparse.ArgumentParser(description="One peer; see benchmarks.peers.")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--turns", type=int, help="turns of each stage")
    parser.add_argument("--output", required=True, help="a file for the JSON")
    return parser.parse_args()


def _warm_up(plain, shape):
    """Lets the framework do once what is done once a process."""
    tiny = dataclasses.replace(shape.with_turns(1), hidden_dim=8, target_dim=8)
    carry_out({"warm-up": functools.partial(plain, tiny, 8)}, tiny.steps_per_turn)
