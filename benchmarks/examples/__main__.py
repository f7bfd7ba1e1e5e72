"""Tries the models of keras.io's examples: `python -m benchmarks.examples`.

KERAS_BACKEND chooses the backend. One record per example and backend is kept in
`--folder`; records of the present commit are not made again. On torch it takes some two
minutes of two free cores. TensorFlow alone trains the rest: `--needed` runs only that.
`--table` writes benchmarks/results/examples.json and .md from all records.
"""

import argparse
import json
import os
import pathlib
import sys

from benchmarks import record
from benchmarks.examples.carry_out import carry_out
from benchmarks.examples.table import BACKENDS, row, write

RUNS = record.REPOSITORY / "runs" / "examples"
RESULTS = record.REPOSITORY / "benchmarks" / "results"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.examples", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="parts of names")
    parser.add_argument(
        "--needed", action="store_true", help="only what no earlier backend can train"
    )
    parser.add_argument("--jobs", type=int, default=2, help="examples at once")
    parser.add_argument("--folder", type=pathlib.Path, default=RUNS, help="of records")
    parser.add_argument("--output", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing: the table")
    arguments = parser.parse_args()
    if arguments.table:
        for path in write(arguments.folder, arguments.output):
            print(f"written: {path}")
        return
    backend = os.environ.setdefault("KERAS_BACKEND", "torch")
    if backend not in BACKENDS:
        parser.error(f"KERAS_BACKEND must be one of {BACKENDS}. Received: {backend}.")
    try_all(
        arguments.folder / backend, arguments.only, arguments.needed, arguments.jobs
    )


def try_all(
    folder: pathlib.Path, only: list[str] | None, needed: bool, jobs: int
) -> None:
    """Tries what is named, or what has no record of this commit."""
    folder.mkdir(parents=True, exist_ok=True)
    from benchmarks.examples.example import all_examples

    facts = {**record.environment(), "backend": folder.name}
    words = ["python -m benchmarks.examples", *(["--needed"] if needed else [])]
    words += ["--only", *only] if only else []
    facts["command"] = f"KERAS_BACKEND={folder.name} {' '.join(words)}"
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))
    backend = facts["backend"]
    places = {name: place for place, name in enumerate(all_examples())}
    allowed = {backend} if needed else {None, backend}
    possible = [n for n, e in all_examples().items() if e.backend in allowed]
    chosen = [
        name
        for name in possible
        if (any(p in name for p in only) if only else not _known(folder, name, facts))
    ]

    def done(name: str, found: dict) -> None:
        found = {
            "example": name,
            "commit": facts["commit"],
            "place": places[name],
        } | found
        _path(folder, name).write_text(json.dumps(found, indent=1))
        print(" | ".join([name, *row(found)]), f"({found['seconds']} s)", flush=True)

    carry_out(chosen, jobs, done)


def _path(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / f"{name.replace('/', '-').replace(': ', '-')}.json"


def _known(folder: pathlib.Path, name: str, facts: dict) -> bool:
    path = _path(folder, name)
    if not path.exists() or facts["commit"].endswith("(changed)"):
        return False
    return json.loads(path.read_text())["commit"] == facts["commit"]


if __name__ == "__main__":
    sys.exit(main())
