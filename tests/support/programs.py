"""How many programs the tests compile, by folder: what a suite's time is made of.

jax tells of each program that XLA compiles, `tensorflow` traces functions (which XLA
then compiles, where `jit_compile` asks for it), and eager torch compiles nothing.
The environment variable `KERAS_IDEA_PROGRAMS` names a file, to which one line of JSON
a test is written: its name, backend, programs, and seconds of CPU.
"""

import collections
import json
import os
import pathlib

import keras
import pytest

COUNT = collections.Counter()
# What `make test` may compile, by backend: what a new test adds is taken from another.
BUDGET = {"jax": 2980, "tensorflow": 790, "torch": 0}


def count_programs():
    """Count from now on, in `COUNT["programs"]`."""
    if keras.backend.backend() == "jax":
        import jax

        def count(event, seconds, **_):
            if event == "/jax/core/compile/backend_compile_duration":
                COUNT["programs"] += 1

        jax.monitoring.register_event_duration_secs_listener(count)
    if keras.backend.backend() == "tensorflow":
        from tensorflow.python.eager.polymorphic_function import tracing_compilation

        original = tracing_compilation._create_concrete_function

        def counted(*args, **kwargs):
            COUNT["programs"] += 1
            return original(*args, **kwargs)

        tracing_compilation._create_concrete_function = counted


def _cpu_seconds():
    times = os.times()  # of this process and of those that it has waited for
    return sum(times[:4])


def pytest_sessionstart(session):
    """Listen to the backend."""
    count_programs()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Write down what a test compiled, with its fixtures."""
    before, cpu = COUNT["programs"], _cpu_seconds()
    yield
    programs = COUNT["programs"] - before
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    folder = file.rpartition("/")[0] or "tests"
    COUNT[f"programs {folder}"] += programs
    COUNT[f"tests {folder}"] += 1
    if path := os.environ.get("KERAS_IDEA_PROGRAMS"):
        row = {"test": item.nodeid, "programs": programs}
        row["backend"] = keras.backend.backend()
        row["cpu_seconds"] = round(_cpu_seconds() - cpu, 3)
        with pathlib.Path(path).open("a") as file:
            file.write(json.dumps(row) + "\n")


def pytest_sessionfinish(session, exitstatus):
    """Fail where `make test` compiles more than its budget."""
    limit = BUDGET[keras.backend.backend()]
    if session.config.getoption("--daily") and COUNT["programs"] > limit:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        COUNT["over"] = COUNT["programs"] - limit


def pytest_terminal_summary(terminalreporter):
    """A line a folder."""
    folders = sorted(key[6:] for key in COUNT if key.startswith("tests "))
    terminalreporter.section("programs compiled")
    for folder in folders:
        tests, programs = COUNT[f"tests {folder}"], COUNT[f"programs {folder}"]
        terminalreporter.line(f"{folder:24} {tests:5} tests {programs:6} programs")
    terminalreporter.line(f"{'all':24} {'':11} {COUNT['programs']:6} programs")
    if COUNT["over"]:
        terminalreporter.line(
            f"FAILED: {COUNT['over']} programs more than the budget in "
            "tests/support/programs.py. Share what is compiled, or see tests/daily.csv."
        )
