"""Writes a file or a folder completely, or not at all."""

import contextlib
import errno
import hashlib
import json
import math
import operator
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from keras_idea.errors import ArgumentError

#: Prefix of unfinished files, which a killed process leaves behind.
TEMPORARY = ".tmp-"


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Yields a temporary path, and renames it to `path` if the block succeeds.

    If the block fails, what was at `path` stays. A file replaces a file, a folder
    replaces a folder. The temporary path has the same name, in a hidden folder on the
    same disk. It is flushed to the disk before it is renamed.

    Example:
    >>> with replacing("demo/mask.npy") as temporary:
    ...     np.save(temporary, np.ones(3))
    >>> np.load("demo/mask.npy").tolist()
    [1.0, 1.0, 1.0]
    """
    target = pathlib.Path(os.path.abspath(path))
    home = next(parent for parent in target.parents if parent.exists())
    room = pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=home))
    try:
        temporary = room / target.name
        yield temporary
        for made in [temporary, *temporary.rglob("*")]:
            _flush(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        if temporary.is_dir() and target.is_dir():
            # A folder cannot be replaced in one step unless it is empty.
            aside = room / f"{TEMPORARY}aside"
            os.rename(target, aside)
            try:
                os.rename(temporary, target)
            except BaseException:
                os.rename(aside, target)
                raise
        else:
            os.replace(temporary, target)
        _flush(target.parent)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _flush(path: pathlib.Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    if os.name == "posix":  # Windows cannot open a folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
    """Writes a file as `replacing` does; text as UTF-8."""
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def check_folder(name: str, value: Any) -> pathlib.Path:
    """Returns the absolute path of a folder; rejects the path of a file."""
    if isinstance(value, (str, pathlib.PurePath)) and str(value):
        path = pathlib.Path(os.path.abspath(value))
        if path.is_dir() or not path.exists():
            return path
    raise ArgumentError(
        f"`{name}` must be the path of a folder. Received: {name}={value!r}."
    )


def json_digest(value: Any) -> str:
    """Returns a hexadecimal SHA-256 of a JSON value, equal on every machine.

    The order of a dict's entries does not matter; tuples equal lists, and NumPy
    integers equal integers.
    """
    text = json.dumps(value, sort_keys=True, default=operator.index)
    return hashlib.sha256(text.encode()).hexdigest()


def reserve(folder: str | os.PathLike, variables: Iterable[Any]) -> None:
    """Raises `OSError` unless a folder has room for an HDF5 file of variables.

    Call it before HDF5 writes: on a full disk, HDF5 ends the process. It takes up to 4
    KB for each variable (measured). Where files cannot be reserved (macOS, Windows), it
    does nothing.
    """
    size = sum(4 * math.prod(variable.shape) + 4096 for variable in variables)
    if hasattr(os, "posix_fallocate"):
        with tempfile.TemporaryFile(dir=os.fspath(folder)) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
