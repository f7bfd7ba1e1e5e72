"""CPU seconds of each test file: what `make test` took goes to build/seconds.

`python -m tests.support.seconds` makes tests/times.csv of it, whose sum has a limit in
tests/pure/test_size.py: CI's machine has two cores, and its users wait.
"""

import collections
import csv
import os

import keras
import pytest

from tests.support import ROOT

FOLDER, TABLE = ROOT / "build" / "seconds", ROOT / "tests" / "times.csv"
BACKENDS = ("torch", "jax", "tensorflow")
SECONDS = collections.Counter()


def cpu_seconds():
    """CPU seconds of this process and of those that it has waited for."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Adds a test, with its fixtures, to its file."""
    began = cpu_seconds()
    done = yield
    SECONDS[item.nodeid.partition("::")[0]] += cpu_seconds() - began
    return done


def pytest_sessionfinish(session):
    """Writes a file for each part of `make test`."""
    if session.config.getoption("--daily") and SECONDS:
        SECONDS["imports and collection"] = cpu_seconds() - SECONDS.total()
        FOLDER.mkdir(parents=True, exist_ok=True)
        part = "product" if any("/product/" in file for file in SECONDS) else "rest"
        path = FOLDER / f"{keras.backend.backend()}-{part}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(sorted(SECONDS.items()))


def main():
    """Writes tests/times.csv from the last `make test`."""
    seconds = {backend: collections.Counter() for backend in BACKENDS}
    for path in FOLDER.glob("*.csv"):
        with path.open(newline="") as lines:
            for file, taken in csv.reader(lines):
                seconds[path.stem.partition("-")[0]][file] += float(taken)
    with TABLE.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(("file", *BACKENDS))
        for file in sorted(set().union(*seconds.values())):
            table.writerow((file, *(f"{seconds[b][file]:.1f}" for b in BACKENDS)))
    print(*(f"{b}: {seconds[b].total():.0f} CPU seconds" for b in BACKENDS), sep="\n")


if __name__ == "__main__":
    main()
