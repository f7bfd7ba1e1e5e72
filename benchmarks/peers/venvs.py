"""An environment for each peer: plain venv and pip, from a file of pinned versions."""

import pathlib
import subprocess
import sys
import tempfile

from benchmarks.record import REPOSITORY

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = REPOSITORY / ".venv-peers"


def make_venv(name, source=None):
    """Makes the environment of a peer, if it is not there as its file wants it.

    Args:
        name: str, whose file is `NAME.txt` beside this one.
        source: what pip shall install in place of the address that the file gives for
            `name`; None: that address.

    Returns:
        The path of its interpreter.

    Raises:
        subprocess.CalledProcessError: if the installation fails; its `stderr` says why.
    """
    wanted = requirements(name, source)
    folder = FOLDER / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    _carry_out(sys.executable, "-m", "venv", "--clear", str(folder))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(wanted)
        file.flush()
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _carry_out(*pip, "install", "-r", file.name)
    stamp.write_text(wanted)
    return python


def requirements(name, source=None):
    """The text of a peer's file of requirements, with another source of the peer."""
    lines = (HERE / f"{name}.txt").read_text().splitlines()
    if source is not None:
        lines = [source if line.startswith(f"{name} @ ") else line for line in lines]
    return "\n".join(lines) + "\n"


def _carry_out(*command):
    subprocess.run(command, check=True, cwd=REPOSITORY, capture_output=True, text=True)
