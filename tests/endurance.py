"""Every test on a backend, folder by folder.

`KERAS_BACKEND=jax python -m tests.endurance`. Each folder is a process of its own, and
two run at once. What passed at this commit is not run again, so a long suite may be
interrupted; what failed is. Logs: build/endurance.
"""

import functools
import os
import subprocess
import sys
import time
from multiprocessing.pool import ThreadPool

from tests.support import ROOT

LOGS = ROOT / "build" / "endurance"
PYTEST = ["-m", "pytest", "-o", "faulthandler_timeout=1800", "--durations=5"]


def pieces(backend):
    """dict: name of a piece -> what pytest is given, and the environment it needs."""
    every = {"KERAS_IDEA_ENDURANCE": "1"}
    folders = [ROOT / "tests" / "backend" / backend]
    for room in ("laws", "product"):
        inside = sorted((ROOT / "tests" / room).iterdir())
        folders += [path for path in inside if any(path.glob("test_*.py"))]
        folders += [path for path in inside if path.name.startswith("test_")]
    folders.append(ROOT / "benchmarks" / "tests" / "product")
    if backend == "torch":  # what touches no backend runs once
        folders.append(ROOT / "tests" / "pure")
        folders.append(ROOT / "benchmarks" / "tests" / "pure")
    named = [path.relative_to(ROOT).as_posix() for path in folders if path.exists()]
    found = {}
    if backend != "torch":  # once more, as a user compiles
        found["daily-optimized"] = (["--daily"], {"KERAS_IDEA_OPTIMIZED": "1"})
    for path in named:
        name = path.removeprefix("tests/").removesuffix(".py").replace("/", "-")
        found[name] = ([path], every)
    return found


def commit():
    """The commit, and "+" where something has changed since."""
    said = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    return subprocess.check_output(said, cwd=ROOT, text=True).strip()


def run(backend, piece):
    """The name of a piece, whether it passes, and what pytest says last."""
    name, (arguments, environment) = piece
    folder = LOGS / commit()
    folder.mkdir(parents=True, exist_ok=True)
    log, passed = folder / f"{backend}-{name}.log", folder / f"{backend}-{name}.passed"
    if passed.exists():
        return name, True, passed.read_text()
    began = time.monotonic()
    with log.open("w") as out:
        status = subprocess.call(
            [sys.executable, *PYTEST, *arguments],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    lines = log.read_text().splitlines()
    said = next((line for line in reversed(lines) if " in " in line), "no end")
    said = f"{said.strip('= ')} ({time.monotonic() - began:.0f} s)"
    if status in (0, 5) and not folder.name.endswith("+"):
        # 5: none of its tests is this backend's. Of a "+" nobody knows what it was.
        passed.write_text(said)
    return name, status in (0, 5), said


def main():
    backend = os.environ["KERAS_BACKEND"]
    failed = []
    with ThreadPool(2) as pool:
        run_one = functools.partial(run, backend)
        for name, passed, said in pool.imap_unordered(run_one, pieces(backend).items()):
            print(f"{name}: {'' if passed else 'FAILED: '}{said}", flush=True)
            if not passed:
                failed.append(name)
    if failed:
        sys.exit(f"{backend}: failed: {', '.join(failed)}. Logs: {LOGS}")


if __name__ == "__main__":
    main()
