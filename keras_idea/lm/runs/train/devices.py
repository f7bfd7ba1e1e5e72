"""The devices and processes of a run: joined, in agreement, each with its rows."""

import contextlib
import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import keras
import numpy as np

from keras_idea import processes
from keras_idea.errors import ConfigError, RunFolderError
from keras_idea.files import TEMPORARY, json_digest
from keras_idea.lm.distribution import (
    Distribution,
    distribution_of,
    kernel_layouts,
    local_rows,
)
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.train.run import Run

T = TypeVar("T")
# Seconds that a network's file system may need to show a new name everywhere.
_DELAY = 30


@dataclasses.dataclass(frozen=True)
class BatchShard:
    """Which sequences of a batch a process reads: a share of each of some parts.

    Args:
        parts: int, micro-batches that a batch is cut into, one after another.
        index: int in [0, count), which of the equal shares of each part.
        count: int, shares of a part.
    """

    parts: int = 1
    index: int = 0
    count: int = 1


def join_mesh(config: RunConfig) -> None:
    """Joins the processes of a run that has a mesh; before anything is computed.

    Raises:
        ConfigError: if the backend has no meshes.
        ProcessError: if the other processes do not come.
    """
    if config.distribution.mesh is None:
        if processes.announced():  # each would do the whole run, in one folder
            raise ConfigError(
                "`distribution.mesh` is missing, but the environment variable "
                "KERAS_DISTRIBUTION_NUM_PROCESSES announces several processes. Set "
                "`distribution.mesh` to { data = ... }, or unset the variable."
            )
        return
    if keras.backend.backend() != "jax":
        raise ConfigError(
            "`distribution.mesh` needs jax, the only backend with meshes. "
            f"Received: mesh={dict(config.distribution.mesh)!r} with the backend "
            f"{keras.backend.backend()!r}. Set the environment variable "
            "KERAS_BACKEND=jax, or write your own loop with "
            "tf.distribute.MirroredStrategy or torch's DistributedDataParallel (see "
            "examples/)."
        )
    processes.join()
    # Their devices are told of by all processes to all, so now, while they are at one.
    keras.distribution.list_devices()
    processes.check_same({"the config": json_digest(config.to_toml())})


def first_then_others(make: Callable[[], T]) -> T:
    """What `make` returns: in the first process first, which may leave a cache."""
    made: list[T] = []
    if processes.count() > 1:
        processes.from_first(lambda: made.append(make()))
    return processes.on_each(lambda: made[0] if made else make())


def check_shared(folder: pathlib.Path) -> None:
    """Refuses a run folder, made by the first process, that not all processes see.

    A `RunFolderError` in all, if one does not find what the first has put there.
    """
    if processes.count() == 1:
        return
    folders: list[pathlib.Path] = []

    def make() -> str:
        folders.append(pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder)))
        return folders[0].name

    name = processes.from_first(make)

    def look() -> None:
        until = time.monotonic() + _DELAY
        while not (folder / name).is_dir():
            if time.monotonic() > until:
                raise RunFolderError(
                    f"The run folder {str(folder)!r} is not the one of process 0: what "
                    f"that one has put there is not to be seen after {_DELAY} seconds. "
                    "Give all processes one folder that they share (--output)."
                )
            time.sleep(0.1)

    try:
        processes.on_each(look)
    finally:
        for path in folders:
            path.rmdir()


def mesh_of(run: Run) -> Distribution | None:
    """The run's devices as Keras takes them, or None: it has no mesh.

    Raises:
        ConfigError: if there are other devices, or the mesh does not divide the model.
    """
    if run.config.distribution.mesh is None:
        return None
    data, model = run.config.distribution.size
    layouts = {}
    if model > 1:
        layouts = kernel_layouts(run.outline.make(run.timeline.wide), model)
    return distribution_of(data, model, layouts)


def spread(distribution: Distribution | None) -> contextlib.AbstractContextManager:
    """A scope in which models are made, and trained, on the run's devices."""
    return contextlib.nullcontext() if distribution is None else distribution.scope()


def share_of(
    batch_size: int, parts: int, distribution: Distribution | None
) -> BatchShard:
    """Which sequences of each batch, computed in `parts`, this process reads."""
    if distribution is None:
        return BatchShard(parts)
    at_once = batch_size // parts
    rows = local_rows(distribution, at_once)
    size = rows.stop - rows.start
    return BatchShard(parts, rows.start // size, at_once // size)


def rows_at_once(rows: int, most: int, devices: int) -> int:
    """The most rows, of so many at most, that all rows are a multiple of.

    Itself a multiple of `devices`, as `rows` and `most` are.

    Example:
    >>> rows_at_once(64, 8, 1), rows_at_once(20, 8, 1), rows_at_once(20, 8, 2)
    (8, 5, 4)
    """
    counts = range(devices, min(rows, most) + 1, devices)
    return max(count for count in counts if rows % count == 0)


def own_rows(arrays: tuple[np.ndarray, ...], size: int, share: BatchShard) -> tuple:
    """Of whole batches one after another, the rows that this process reads.

    Args:
        arrays: tuple of arrays `(batches * size, ...)`.
        size: int, rows of a batch.
        share: `BatchShard`.

    Returns:
        tuple of arrays `(batches * size / share.count, ...)`.
    """
    own = size // share.count
    rows = slice(share.index * own, (share.index + 1) * own)
    return tuple(
        array.reshape(-1, size, *array.shape[1:])[:, rows].reshape(-1, *array.shape[1:])
        for array in arrays
    )
