"""Every test on a backend, folder by folder.

`KERAS_BACKEND=jax python -m tests.endurance`. Each folder is a process of its own. What
passed at this commit is not run again, so a suite of hours may be interrupted; what
failed is. Logs: build/endurance.
"""

import os
import subprocess
import sys
import time

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
    found = {
        path.removeprefix("tests/").removesuffix(".py").replace("/", "-"): (
            [path],
            every,
        )
        for path in named
    }
    if backend != "torch":  # once more, as a user compiles
        found["daily-optimized"] = (["--daily"], {"KERAS_IDEA_OPTIMIZED": "1"})
    return found


def commit():
    """The commit, and "+" where something has changed since."""
    said = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    return subprocess.check_output(said, cwd=ROOT, text=True).strip()


def run(backend, name, arguments, environment):
    """Whether a piece passes, and the last line that pytest says of it."""
    folder = LOGS / commit()
    folder.mkdir(parents=True, exist_ok=True)
    log, passed = folder / f"{backend}-{name}.log", folder / f"{backend}-{name}.passed"
    if passed.exists():
        return True, passed.read_text()
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
    return status in (0, 5), said


def main():
    backend = os.environ["KERAS_BACKEND"]
    failed = []
    for name, piece in pieces(backend).items():
        passed, said = run(backend, name, *piece)
        print(f"{backend}: {name}: {'' if passed else 'FAILED: '}{said}", flush=True)
        if not passed:
            failed.append(name)
    if failed:
        sys.exit(f"{backend}: failed: {', '.join(failed)}. Logs: {LOGS}")


if __name__ == "__main__":
    main()
