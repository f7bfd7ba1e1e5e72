"""The room on a disk, and what to say when something cannot be written to it."""

import contextlib
import errno
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from keras_idea.errors import DiskError, KerasIdeaError

# Of a file system that cannot reserve room.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


def check_room(folder: str | os.PathLike, needed: int, what: str, cure: str) -> None:
    """Raises `DiskError` if a disk has fewer free bytes than are needed.

    Args:
        folder: path of the folder, which need not exist.
        needed: int, bytes.
        what: str, what is to be written: "a checkpoint".
        cure: str, a sentence that says what to do.

    Example:
    >>> check_room("demo", 1000, "a file", "Free space on that disk.")
    """
    free = _free_bytes(folder)
    if free < needed:
        raise DiskError(
            f"The disk has no room for {what}. Received: folder={str(folder)!r}, with "
            f"{_megabytes(free)} free of the {_megabytes(needed)} needed. {cure}"
        )


def reserve(folder: str | os.PathLike, size: int) -> None:
    """Raises `OSError` unless a file of `size` bytes can be written to a folder now.

    HDF5 ends the whole process if a disk is full, so its files need this before they
    are written. Quotas and limits of a process count too.
    """
    if not hasattr(os, "posix_fallocate"):  # macOS, Windows
        if _free_bytes(folder) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return
    with tempfile.TemporaryFile(dir=os.fspath(folder)) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise


def weights_bytes(parameters: int, variables: int) -> int:
    """Bytes of a file of float32 weights, an estimate that is rather too high.

    HDF5 takes up to 4 KB for each variable (measured).
    """
    return 4 * parameters + 4096 * variables


@contextlib.contextmanager
def writing(what: str, folder: str | os.PathLike, cure: str) -> Iterator[None]:
    """Turns each `OSError` of the block into a `DiskError` that says what to do.

    Args:
        what: str, what the block writes: "The checkpoint".
        folder: path of the folder that it writes to.
        cure: str, a sentence that says what to do.

    Example:
    >>> with writing("The note", "text.txt", "Use another folder."):
    ...     _ = pathlib.Path("text.txt/note").write_text("x")  # text.txt is a file
    Traceback (most recent call last):
    keras_idea.errors.DiskError: The note cannot be written: Not a directory. ...
    """
    try:
        yield
    except KerasIdeaError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error).rstrip(".")
        raise DiskError(
            f"{what} cannot be written: {reason}. Received: folder={str(folder)!r}, "
            f"with {_megabytes(_free_bytes(folder))} free. {cure}"
        ) from error


def _free_bytes(folder: str | os.PathLike) -> float:
    """Bytes; infinite if the file system does not tell."""
    path = pathlib.Path(os.path.abspath(folder))
    home = next(parent for parent in (path, *path.parents) if os.path.exists(parent))
    try:
        usage = shutil.disk_usage(home)
    except OSError:
        return math.inf
    return usage.free if usage.total else math.inf


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
