"""What the processes of one run tell each other; a single process talks to nobody.

Only JAX has several processes. Each runs the same program on its own devices.
"""

import importlib.metadata
import json
import os
from collections.abc import Callable
from typing import Any, TypeVar

import keras
import numpy as np

from keras_idea import errors
from keras_idea.errors import ConfigError

T = TypeVar("T")
_PREFIX = "KERAS_DISTRIBUTION_"
_PACKAGES = ("keras-idea", "keras", "jax", "numpy")
_alone: list[bool] = []  # while it is not empty, this process waits for no other


def count() -> int:
    """Returns the number of processes of the run."""
    if _alone or keras.backend.backend() != "jax":
        return 1
    import jax

    return jax.process_count()


def index() -> int:
    """Returns the number of this process, from 0."""
    if count() == 1:
        return 0
    import jax

    return jax.process_index()


def is_first() -> bool:
    """Returns whether this process writes the files of the run."""
    return index() == 0


def announced() -> bool:
    """Returns whether Keras's environment variables name several processes."""
    return os.environ.get(f"{_PREFIX}NUM_PROCESSES", "1") != "1"


def join() -> None:
    """Joins the other processes of the run, if there are any, before it computes.

    Keras's environment variables name them, or JAX finds them (Slurm, GKE, TPU pods).
    """
    import jax

    if jax.distributed.is_initialized():
        return
    try:
        keras.distribution.initialize()
    except (ValueError, RuntimeError) as error:
        if announced():
            raise ConfigError(
                f"The processes of the run cannot be joined: {error} Start all at "
                f"once, each with {_PREFIX}JOB_ADDRESSES, NUM_PROCESSES and PROCESS_ID."
            ) from error


def exchange(text: str) -> list[str]:
    """Returns the text of each process, in their order; every process must call it."""
    if count() == 1:
        return [text]
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(text.encode(), np.uint8)
    sizes = process_allgather(np.int32(own.size))
    row = np.zeros(max(sizes.max(), 1), np.uint8)
    row[: own.size] = own
    rows = process_allgather(row)
    return [bytes(row[:n]).decode() for row, n in zip(rows, sizes, strict=True)]


def from_first(make: Callable[[], Any]) -> Any:
    """Returns the JSON that `make` makes in the first process, or raises its error."""
    if count() == 1:
        return make()

    def made() -> str:
        if not is_first():
            return ""
        _alone.append(True)
        try:
            return json.dumps(make())
        finally:
            _alone.pop()

    return json.loads(exchange(on_each(made))[0])


def on_each(make: Callable[[], T]) -> T:
    """Calls `make` and waits for all processes; the error of one is raised in all."""
    try:
        made = make()
    except BaseException as error:
        exchange(json.dumps([type(error).__name__, str(error)]))
        raise
    for number, failure in enumerate(exchange("")):
        if failure:
            name, message = json.loads(failure)
            kind = getattr(errors, name, RuntimeError)
            raise kind(f"{name} in process {number}: {message}")
    return made


def gathered(value: Any) -> Any:
    """Returns the whole of an array, which may lie on all processes; all call it."""
    if getattr(value, "is_fully_addressable", True):
        return value
    if value.is_fully_replicated:
        return value.addressable_data(0)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(value, tiled=True)


def check_same(facts: dict[str, Any]) -> None:
    """Rejects processes that differ in a fact of JSON, or in their packages."""
    if count() == 1:
        return
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    first, *others = map(json.loads, exchange(json.dumps({**versions, **facts})))
    for number, other in enumerate(others, 1):
        for name, value in first.items():
            if other.get(name) != value:
                raise ConfigError(
                    f"The processes of a run must have the same {name}. Received: "
                    f"{value!r} in process 0, {other.get(name)!r} in {number}."
                )
