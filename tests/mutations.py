"""Which test finds which fault? `python -m tests.mutations`, on torch, resumable.

A mutation is one fault that is put into a copy of the package: an exchanged operator, a
number that is one too large, a statement that is left out. `tests/known_faults.py` has
those that were there once; the rest are made from the sources, the same ones from the
same sources. The tests that execute the changed line run against it. `build/mutations`
keeps what was found; `tests/mutations.csv` is the table.

    python -m tests.mutations record   which test executes which line (once, 20 minutes)
    python -m tests.mutations run      the mutations, in two processes
    python -m tests.mutations laws     of each law a mutation that only it finds
    python -m tests.mutations table    writes tests/mutations.csv; prints what is missed
"""

import ast
import collections
import csv
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import coverage
import pytest

from tests.known_faults import FAULTS, HARMLESS
from tests.support import ROOT
from tests.support.changes import Change, changes_of

BUILD = ROOT / "build" / "mutations"
TABLE = ROOT / "tests" / "mutations.csv"
PACKAGES = ("keras_idea", "keras_idea_cli")
LAWS = {
    f"tests/laws/test_{law}.py"
    for law in (
        "algorithm1",
        "masked_equals_narrow",
        "compacts_and_loads",
        "resumes",
        "explains",
        "rejects",
    )
}
LINES_A_MUTATION = 190
AT_ONCE = 60  # tests: the next are tried if these find nothing
PROCESSES = 2
SECONDS = 90  # for one test


def generated(executed):
    """About one change for each 190 lines of a file, where a test executes them."""
    chosen = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            lines = path.read_bytes().count(b"\n")
            # Rounded up or down by its name: what other files hold changes nothing.
            drawn = int(_digest(file), 16) % LINES_A_MUTATION
            wanted = (lines + drawn) // LINES_A_MUTATION
            known = executed.get(file, {})
            possible = [change for change in changes_of(path) if change.line in known]
            possible.sort(key=lambda change: _digest(change.name))
            chosen += possible[:wanted]
    return chosen


def _digest(name):
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def known(executed):
    """The changes of tests/known_faults.py that torch finds."""
    found = []
    for fault in FAULTS:
        if fault.backend == "torch":
            file = f"keras_idea/{fault.file}"
            text = (ROOT / file).read_bytes()
            start = text.index(fault.old.encode())
            end = start + len(fault.old.encode())
            first, last = (text[:place].count(b"\n") + 1 for place in (start, end))
            # The first line of it that a test executes says which tests run.
            lines = (n for n in range(first, last + 2) if n in executed.get(file, {}))
            line = next(lines, first)
            found.append(Change(fault.fault, file, line, start, end, fault.new))
    return found


def record():
    """Runs torch's part of `make test`, and keeps which test executes which line."""
    shutil.rmtree(BUILD / "coverage", ignore_errors=True)
    (BUILD / "coverage").mkdir(parents=True)
    settings = BUILD / "coveragerc"
    settings.write_text(
        f"[run]\nsource = {', '.join(PACKAGES)}\nparallel = true\n"
        f"data_file = {BUILD}/coverage/data\nrelative_files = true\n"
        "context = ${PYTEST_CURRENT_TEST-}\npatch = subprocess\n"
    )
    command = [sys.executable, "-m", "coverage"]
    subprocess.run(
        [*command, "run", f"--rcfile={settings}", "-m", "pytest", "--daily"]
        + ["-p", "tests.support.recorded", "tests"],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": "torch", "RECORDED": str(BUILD / "tests")},
    )
    subprocess.run([*command, "combine", f"--rcfile={settings}"], cwd=ROOT, check=True)


def recorded():
    """Of each file and line the tests that execute it; of each test its CPU seconds."""
    data = coverage.CoverageData(str(BUILD / "coverage" / "data"))
    data.read()
    lines = (BUILD / "tests").read_text().splitlines()
    tests = [json.loads(line) for line in lines]
    seconds = {name: taken for name, taken, passed in tests if passed}
    executed = {}
    for file in data.measured_files():
        # A process that a test starts says its phase, too.
        executed[os.path.relpath(ROOT / file, ROOT)] = {
            line: {name.split(" (")[0] for name in names} & set(seconds)
            for line, names in data.contexts_by_lineno(file).items()
        }
    for lines in executed.values():
        for line in [line for line, tests in lines.items() if not tests]:
            del lines[line]
    return executed, seconds


def _result_of(change):
    """The file of what was found of a change, in the text that its file has now."""
    text = (ROOT / change.file).read_text(encoding="utf-8")
    return BUILD / "found" / f"{_digest(change.name + text)}.json"


def is_law(test):
    """Whether a test is one of the six laws, which stay."""
    return test.partition("::")[0] in LAWS


def run():
    """Tries what was not tried yet; each process has its copy of the repository."""
    executed, seconds = recorded()
    changes = known(executed) + generated(executed)
    (BUILD / "found").mkdir(exist_ok=True)
    for path in (BUILD / "found").iterdir():
        if not path.stat().st_size:  # of a run that was interrupted
            path.unlink()
    for number in range(PROCESSES):
        if not os.fork():
            _work(number, changes, executed, seconds)
            os._exit(0)
    for _ in range(PROCESSES):
        os.wait()
    for fault in FAULTS:
        result = BUILD / "found" / f"{_digest(fault.fault)}.json"
        if fault.backend != "torch" and not result.exists():
            found = {"change": fault.fault, "of": 1, "found": _elsewhere(fault)}
            result.write_text(json.dumps(found))


def _elsewhere(fault):
    """The first test of another backend's part of `make test` that finds a fault."""
    copy = BUILD / "copy-0"
    path = copy / "keras_idea" / fault.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    try:
        folders = ["tests/laws", f"tests/backend/{fault.backend}"]
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "--daily", "-x", "--tb=no", *folders],
            cwd=copy,
            env=os.environ | {"KERAS_BACKEND": fault.backend, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(text, encoding="utf-8")
    return re.findall(r"^FAILED (.*?)(?: - .*)?$", ended.stdout, re.M)


def _copy(name):
    """A copy of the repository, which this process works in from now on."""
    copy = BUILD / f"copy-{name}"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for file in filter(None, files.split("\0")):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy / file)
    os.chdir(copy)
    # What every test imports is imported once: each mutation is a fork.
    os.environ |= {"KERAS_BACKEND": "torch", "PYTHONPATH": str(copy)}
    sys.path[:] = [str(copy), *(path for path in sys.path if path != str(ROOT))]
    import keras_hub  # noqa: F401
    import torch

    torch.set_num_threads(1)
    return copy


def _work(number, changes, executed, seconds):
    copy = _copy(number)
    for change in changes:
        result = _result_of(change)
        try:
            result.touch(exist_ok=False)
        except FileExistsError:
            continue  # another process has it, or had it
        tests = executed.get(change.file, {}).get(change.line, ())
        found = _try(
            copy / change.file,
            change,
            sorted(tests, key=seconds.__getitem__),
        )
        result.write_text(json.dumps({"change": change.name, **found}))


def _try(path, change, tests):
    """What the tests, in this order, say of a change."""
    text = path.read_bytes()
    changed = text[: change.start] + change.new.encode() + text[change.end :]
    try:
        ast.parse(changed)
    except SyntaxError:
        return {"invalid": True}
    path.write_bytes(changed)
    unfit = BUILD / "unfit"
    skipped = set(unfit.read_text().splitlines()) if unfit.exists() else set()
    ended, found = set(), set()
    left = [test for test in tests if test not in skipped]
    while left and not found:
        now, left = left[:AT_ONCE], left[AT_ONCE:]
        more, failed = _failed(now)
        ended |= more
        if failed:
            # What fails in a copy without a change, too, is no finding.
            path.write_bytes(text)
            found = failed - _failed(sorted(failed))[1]
            path.write_bytes(changed)
            with (BUILD / "unfit").open("a") as unfit:  # for a fork of this process
                unfit.writelines(f"{test}\n" for test in failed - found)
            left = [test for test in now if test not in more | failed] + left
    path.write_bytes(text)
    return {"tried": len(ended), "of": len(tests), "found": sorted(found)}


def _failed(tests):
    """Runs tests in a process: which ended, and which failed."""
    report = pathlib.Path(f"{os.getpid()}.report").resolve()
    report.write_text("")
    child = os.fork()
    if not child:
        _test(tests, report)
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.time() - report.stat().st_mtime > SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.2)
    said = [json.loads(line) for line in report.read_text().splitlines()]
    ended = {name for name, outcome in said if outcome != "began"}
    found = {name for name, outcome in said if outcome == "failed"}
    # A test that never ended hangs, or ended its process.
    found |= {name for name, outcome in said if outcome == "began"} - ended
    if not said:  # nothing can be imported
        found |= set(tests[:1])
    return ended, found


class _Report:
    """Pytest's plugin in the fork: this order of tests, until enough is known."""

    def __init__(self, tests, report):
        self.order = {name: place for place, name in enumerate(tests)}
        self.report, self.found = report, False

    def _write(self, test, outcome):
        with self.report.open("a") as out:
            out.write(json.dumps([test, outcome]) + "\n")

    def pytest_collection_modifyitems(self, items):
        mine = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(mine, key=lambda item: self.order[item.nodeid])

    def pytest_runtest_logstart(self, nodeid):
        self._write(nodeid, "began")

    def pytest_runtest_logreport(self, report):
        self.found = self.found or report.failed
        if report.failed or report.when == "teardown":
            self._write(report.nodeid, report.outcome)

    def pytest_runtest_logfinish(self):
        if self.found:
            pytest.exit("enough is known")


def _test(tests, report):
    """The forked process: pytest, without a word."""
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    # The copy has modules of the same names.
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]
    try:
        files = sorted({name.split("::")[0] for name in tests})
        options = [
            "--tb=no",
            "-p",
            "no:cacheprovider",
            "--continue-on-collection-errors",
        ]
        pytest.main([*options, *files], plugins=[_Report(tests, report)])
    finally:
        os._exit(0)


def laws():
    """Finds, for each law, a mutation that no other test finds: why the law stays.

    The line that is changed is one that few tests outside of the law execute.
    """
    executed, seconds = recorded()
    possible = [
        (change, executed[file][change.line])
        for file in sorted(executed)
        for change in changes_of(ROOT / file)
        if change.line in executed[file]
    ]
    copy = _copy("laws")
    for law in sorted(LAWS):
        result = BUILD / f"{pathlib.Path(law).stem}.json"
        tried = []
        for change, tests in possible:
            mine = {test for test in tests if test.startswith(f"{law}::")}
            if mine:
                others = sorted(tests - mine, key=seconds.__getitem__)
                mine = sorted(mine, key=seconds.__getitem__)
                tried.append((len(others), _digest(change.name), change, mine, others))
        for _, _, change, mine, others in [] if result.exists() else sorted(tried)[:40]:
            by_law = _try(copy / change.file, change, mine)
            if by_law.get("found") and (
                not others or not _try(copy / change.file, change, others)["found"]
            ):
                said = {"law": law, "change": change.name, "others": len(others)}
                result.write_text(json.dumps(said))
                break


def results():
    """What was found of each change of today's sources, by name."""
    executed, _ = recorded()
    changes = known(executed) + generated(executed)
    elsewhere = [fault.fault for fault in FAULTS if fault.backend != "torch"]
    paths = [_result_of(change) for change in changes]
    paths += [BUILD / "found" / f"{_digest(name)}.json" for name in elsewhere]
    said = [json.loads(path.read_text() or "{}") for path in sorted(paths)]
    return {each["change"]: each for each in said if "found" in each and each["of"]}


def smallest(found):
    """Few test functions that find every change: greedily, the laws first."""
    by_test = collections.defaultdict(set)
    for change, each in found.items():
        for test in each["found"]:
            by_test[test.split("[")[0]].add(change)
    left = {change for change, each in found.items() if each["found"]}
    chosen = []
    while left:
        test = max(
            sorted(by_test),
            key=lambda test: (
                (is_law(test), len(by_test[test] & left))
                if by_test[test] & left
                else (False, 0)
            ),
        )
        chosen.append((test, sorted(by_test[test] & left)))
        left -= by_test[test]
    return chosen


def table():
    """Writes which test finds which change, and says what no test finds."""
    found = results()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("test", "fault"))
        for test, changes in smallest(found):
            lines.writerows((test, change) for change in changes)
        for path in sorted(BUILD.glob("test_*.json")):
            said = json.loads(path.read_text())
            lines.writerow((f"only {said['law']}", said["change"]))
        harmless = [change for change in found if change in HARMLESS]
        lines.writerows((f"harmless: {HARMLESS[name]}", name) for name in harmless)
    missed = [change for change, each in found.items() if not each["found"]]
    missed = [change for change in missed if change not in HARMLESS]
    print(*(f"missed: {change}" for change in missed), sep="\n")
    print(
        f"{len(found)} mutations: {len(harmless)} are harmless, {len(missed)} missed; "
        f"see {TABLE.name}"
    )
    return len(missed)


def main(commands):
    """Records, if there is no recording yet; runs; writes the table."""
    for command in commands or ["record", "run", "laws", "table"]:
        if command == "record" and not commands and (BUILD / "coverage").exists():
            continue
        steps = {"record": record, "run": run, "laws": laws, "table": table}
        missed = steps[command]()
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
