"""Tries examples, each in two processes of its own: a crash is the record's."""

import concurrent.futures
import datetime
import json
import multiprocessing
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.examples.example import all_examples
from benchmarks.examples.trial import beginning, call

#: One server of processes: it has imported Keras (not JAX), and nothing of this.
CONTEXT = multiprocessing.get_context("forkserver")
#: Keras imports TensorFlow where it is installed, at the latest when it saves. JAX has
#: threads when it is imported, so that a fork of it may hang.
PRELOADED = {"jax": []}
LIMIT = 400


def carry_out(
    names: Iterable[str], jobs: int, done: Callable[[str, dict], None]
) -> None:
    """Tries each example; calls `done` with its name and record.

    Args:
        names: names of examples.
        jobs: int, how many at once.
        done: function, called as each one ends.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    backend = os.environ["KERAS_BACKEND"]
    CONTEXT.set_forkserver_preload(PRELOADED.get(backend, ["keras", "tensorflow"]))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_try, name): name for name in names}
        for future in concurrent.futures.as_completed(waiting):
            done(waiting[future], future.result())


def _try(name: str) -> dict[str, Any]:
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        died = _process("prune_example", name, folder)
        record = _read(folder / "pruned.json") or beginning(all_examples()[name])
        if died:
            record["errors"]["process"] = died
        if died := _process("load_example", name, folder):
            record["errors"]["loading process"] = died
        record["loaded"] = _read(folder / "loaded.json")
        record["cpu seconds"] = round(sum(_seconds(folder)), 1)
        trace = folder / "traces.txt"
        record["traces"] = trace.read_text() if trace.exists() else ""
    record["seconds"] = round(time.perf_counter() - begin, 1)
    record["date"] = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return record


def _read(path: pathlib.Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _seconds(folder: pathlib.Path) -> list[float]:
    return [float(path.read_text()) for path in folder.glob("*.seconds")]


def _process(function: str, name: str, folder: pathlib.Path) -> str | None:
    """Why a process did not end well; None if it did."""
    log = folder / "log.txt"
    process = CONTEXT.Process(target=call, args=(function, name, folder, log))
    process.start()
    process.join(LIMIT)
    if process.is_alive():
        process.kill()
        process.join()
        return f"it was ended after {LIMIT} s"
    if process.exitcode == 0:
        return None
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return f"exit code {process.exitcode}: {lines[-1] if lines else 'it said nothing'}"
