"""Runs that several tests read."""

import pytest

from tests.support.tiny_run import CONFIG, run_in


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished tiny run with its baseline: its folder, and what was printed."""
    return run_in(tmp_path_factory.mktemp("finished"), CONFIG)
