"""The tests of a backend, and which of them `make test` runs, as JSON.

`python -m docs.building.collected` is a process of its own for each backend, which
`KERAS_BACKEND` names.
"""

import contextlib
import json
import os
import re
import subprocess
import sys

import pytest
from _pytest.skipping import evaluate_skip_marks

_PLACE = re.compile(r"^tests/(pure|laws|product|backend/[a-z]+)/")


class _Names:
    daily: dict[str, bool]

    def pytest_collection_finish(self, session):
        """Keeps the ids of the tests that are not skipped here."""
        from tests.support.selection import runs_daily

        self.daily = {
            _PLACE.sub("", item.nodeid): runs_daily(item)
            for item in session.items
            if evaluate_skip_marks(item) is None
        }


def collect(backends) -> dict[str, dict[str, bool]]:
    """By backend and id, without its first folder of `tests`: does `make test` run it?

    Raises:
        RuntimeError: where they cannot be collected.
    """
    processes = {
        backend: subprocess.Popen(
            [sys.executable, "-m", "docs.building.collected"],
            env={**os.environ, "KERAS_BACKEND": backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for backend in backends
    }
    found = {
        backend: process.communicate()[0] for backend, process in processes.items()
    }
    for backend, process in processes.items():
        if process.returncode:
            raise RuntimeError(f"The tests cannot be collected on {backend}.")
    return {backend: json.loads(text) for backend, text in found.items()}


if __name__ == "__main__":
    names = _Names()
    with contextlib.redirect_stdout(sys.stderr):
        status = pytest.main(
            ["--collect-only", "-qq", "-p", "no:cacheprovider"],
            plugins=[names],
        )
    if status == 0:
        json.dump(names.daily, sys.stdout)
    sys.exit(status)
