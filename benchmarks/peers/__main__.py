"""Other pruning libraries and this one at one task: `python -m benchmarks.peers`."""

import argparse
import datetime
import json
import os
import pathlib
import subprocess

import rich.console

from benchmarks import record
from benchmarks.peers.picture import draw
from benchmarks.peers.registry import PEERS
from benchmarks.peers.run import PeerError, last_line, run_peer
from benchmarks.peers.tables import make_tables
from benchmarks.peers.task import SHAPES
from benchmarks.peers.venvs import make_venv

RESULTS = record.REPOSITORY / "benchmarks" / "results"
TERMINAL = 170


def main():
    """Measures the peers that are asked for; what is known of the others is kept."""
    arguments = _parse_arguments()
    console = rich.console.Console()
    pythons, sources = _pairs(arguments.python), _pairs(arguments.source)
    facts = record.facts(_command(arguments), {}, "cpu")
    # One core: what a library does in other threads is then counted all the same.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results = read_results(arguments.output)
    for name in arguments.only or PEERS:
        peer = PEERS[name]
        for shape in arguments.shape or SHAPES:
            console.print(f"{datetime.datetime.now():%H:%M} {name}, {shape}")
            try:
                python = pythons.get(peer.script) or _install(peer, sources)
                limit = arguments.time_limit
                result = run_peer(peer, python, shape, arguments.turns, limit)
            except PeerError as error:
                result = {"error": str(error)}
                console.print(f"  {error}")
            results.setdefault(name, {})[shape] = {"date": facts["date"], **result}
            paths, tables = write(arguments.output, facts, results)
    record.print_tables(tables, width=TERMINAL)
    for path in paths:
        console.print(f"written: {path}")


def _parse_arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument(
        "--only", nargs="+", choices=PEERS, metavar="NAME", help=", ".join(PEERS)
    )
    parser.add_argument(
        "--shape", action="append", choices=SHAPES, help="default: all, may be repeated"
    )
    parser.add_argument(
        "--turns", type=int, help="turns of each stage, at least 2 (default: by shape)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="SCRIPT=PATH",
        help="an interpreter to use in place of an environment of the peer's own",
    )
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="SCRIPT=WHAT",
        help="what pip shall install as this peer: jaxpruner=FOLDER, of a checkout",
    )
    parser.add_argument("--time-limit", type=int, default=1800, help="seconds a script")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS, help="a folder")
    arguments = parser.parse_args()
    if arguments.turns is not None and arguments.turns < 2:
        parser.error(f"--turns must be at least 2. Received: {arguments.turns}.")
    return arguments


def _pairs(options):
    return dict(option.split("=", 1) for option in options)


def _command(arguments):
    """What was typed, without the paths of this machine."""
    words = ["python -m benchmarks.peers"]
    words += ["--only", *arguments.only] if arguments.only else []
    words += [f"--shape {shape}" for shape in arguments.shape or []]
    words += [f"--turns {arguments.turns}"] if arguments.turns else []
    words += [f"--python {name}=..." for name in _pairs(arguments.python)]
    words += [f"--source {name}=..." for name in _pairs(arguments.source)]
    return " ".join(words)


def _install(peer, sources):
    try:
        return make_venv(peer.script, sources.get(peer.script))
    except subprocess.CalledProcessError as error:
        raise PeerError(f"It does not install: {last_line(error)}") from None


def read_results(folder):
    """What earlier runs have measured: peer -> shape -> result."""
    path = folder / "peers.json"
    return json.loads(path.read_text())["peers"] if path.exists() else {}


def write(folder, facts, results):
    """Writes numbers, tables and picture; returns their paths, and the tables."""
    in_order = {name: results[name] for name in PEERS if name in results}
    tables = make_tables(in_order)
    paths = record.write(folder, "peers", facts, {"peers": in_order}, tables)
    picture = folder / "peers.png"
    draw(in_order, picture)
    return [*paths, picture], tables


if __name__ == "__main__":
    main()
