"""Runs one peer's script in its environment, with one thread, and reads its JSON."""

import json
import os
import pathlib
import subprocess
import tempfile

from benchmarks.record import REPOSITORY

# One thread everywhere, and memory that is kept: else the threads in which the models
# take turns would each have an arena of their own, some slower than others.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
}


class PeerError(Exception):
    """A peer that does not install or run; the text is the last line it said."""


def run_peer(peer, python, shape, turns, limit):
    """Carries out a peer's script.

    Args:
        peer: `Peer`.
        python: path of the interpreter of its environment.
        shape: str, a key of `task.SHAPES`.
        turns: int, turns of each stage; None: as many as the shape says.
        limit: int, seconds that it may take.

    Returns:
        dict, what the script wrote.

    Raises:
        PeerError: if it fails or takes longer.
    """
    variables = {**os.environ, **VARIABLES}
    if peer.backend is not None:
        variables["KERAS_BACKEND"] = peer.backend
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "result.json")
        command = [str(python), "-m", f"benchmarks.peers.{peer.script}"]
        command += ["--shape", shape, "--output", str(output)]
        command += [] if turns is None else ["--turns", str(turns)]
        try:
            subprocess.run(
                command,
                check=True,
                capture_output=True,
                text=True,
                cwd=REPOSITORY,
                env=variables,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"It took longer than {limit} seconds.") from None
        except subprocess.CalledProcessError as error:
            raise PeerError(last_line(error)) from None
        return json.loads(output.read_text())


def last_line(error):
    """The last line of what a process said that tells most, without paths."""
    lines = [line.strip() for line in (error.stderr or "").splitlines()]
    lines = [line for line in lines if line and not line.startswith("note:")]
    fatal = [line for line in lines if line.startswith("fatal:")]
    errors = [line for line in lines if "error" in line.lower()]
    said = (fatal or errors or lines or [str(error)])[-1]
    for path in (str(REPOSITORY), str(pathlib.Path.home())):
        said = said.replace(path, "...")
    return said
