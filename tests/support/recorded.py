"""Pytest's plugin for `python -m tests.mutations record`: which test is running."""

import json
import os
import pathlib

import coverage
import pytest

from tests.support.seconds import cpu_seconds

_FAILED = set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Names the test in the coverage, and writes its CPU seconds."""
    running, began = coverage.Coverage.current(), cpu_seconds()
    running.switch_context(item.nodeid)
    done = yield
    running.switch_context("")
    line = [item.nodeid, round(cpu_seconds() - began, 2), item.nodeid not in _FAILED]
    with pathlib.Path(os.environ["RECORDED"]).open("a") as out:
        out.write(json.dumps(line) + "\n")
    return done


def pytest_runtest_logreport(report):
    """A test that fails or is skipped finds no mutation."""
    if report.outcome != "passed":
        _FAILED.add(report.nodeid)
