"""What the guides print, for their pages: `python -m docs.building.outputs [NAME ...]`.

Each guide runs in an empty folder, one cell after another. What a cell prints is kept
in docs/guides/outputs.json, by the cell's text: a cell that is changed has no output
until its guide was run again.
"""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from docs.building.guides import read_guide

ROOT = pathlib.Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
KEPT = GUIDES / "outputs.json"
_MOST = 14  # lines of an output


def key(code: str) -> str:
    """What a cell's output is kept under."""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def code_cells(name: str) -> list[str]:
    """The code of a guide, cell by cell."""
    guide = read_guide((GUIDES / f"{name}.py").read_text(encoding="utf-8"))
    return [text for kind, text in guide.cells if kind == "code"]


def outputs() -> dict[str, str]:
    """All that is kept: cell -> output."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def printed(name: str) -> dict[str, str]:
    """What the cells of a guide printed when they were run last, by their code."""
    kept = outputs()
    return {code: kept.get(key(code), "") for code in code_cells(name)}


def shortened(text: str) -> str:
    """An output without progress bars, of its middle only that it was there."""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    lines = [line for line in lines if "\x1b" not in line]
    if len(lines) > _MOST:
        lines = [*lines[: _MOST // 2], "...", *lines[-_MOST // 2 :]]
    return "\n".join(lines)


def run_cells(name: str) -> dict[str, str]:
    """Runs a guide here; returns what its cells print."""
    found, names = {}, {"__name__": "__main__"}
    for code in code_cells(name):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}.py", "exec"), names)
        found[key(code)] = shortened(printed.getvalue())
    return found


def main(names: list[str]) -> None:
    """Runs guides, each in its own process and folder, and keeps their outputs."""
    every = sorted(path.stem for path in GUIDES.glob("*.py"))
    kept = outputs()
    for name in names or every:
        call = f"from docs.building import outputs as o; o.run_to({name!r})"
        with tempfile.TemporaryDirectory() as folder:
            paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            environment = {**os.environ, "PYTHONPATH": paths}
            command = [sys.executable, "-W", "ignore", "-c", call]
            subprocess.run(command, cwd=folder, env=environment, check=True)
            found = json.loads(pathlib.Path(folder, "outputs.json").read_text())
        kept |= {cell: text.replace(folder, "FOLDER") for cell, text in found.items()}
        print(f"{name}: {len(found)} cells", flush=True)
    current = {key(code) for name in every for code in code_cells(name)}
    text = {cell: kept[cell] for cell in sorted(kept) if cell in current}
    KEPT.write_text(json.dumps(text, indent=1, ensure_ascii=False) + "\n", "utf-8")


def run_to(name: str) -> None:
    """Runs a guide, and leaves its outputs in the working folder."""
    pathlib.Path("outputs.json").write_text(json.dumps(run_cells(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
