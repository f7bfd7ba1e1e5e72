"""The tests that `make test` runs on a backend, as JSON.

`python -m docs.building.collected` is a process of its own for each backend, which
`KERAS_BACKEND` names.
"""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from _pytest.skipping import evaluate_skip_marks


class _Names:
    ids: list[str]

    def pytest_collection_finish(self, session):
        """Keeps the ids of the tests that are not skipped here."""
        self.ids = [
            item.nodeid.removeprefix("tests/")
            for item in session.items
            if evaluate_skip_marks(item) is None
        ]


def collect(backends) -> dict[str, list[str]]:
    """By backend the ids of its tests.

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
            ["--collect-only", "-qq", "--once=both", "-p", "no:cacheprovider"],
            plugins=[names],
        )
    if status == 0:
        json.dump(names.ids, sys.stdout)
    sys.exit(status)
