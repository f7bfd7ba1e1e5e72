"""One way to write a file or a folder: whole, on the disk, or not at all."""

import contextlib
import errno
import hashlib
import json
import math
import operator
import os
import pathlib
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any

from keras_idea.errors import ArgumentError, DiskError, KerasIdeaError

#: How the names of unfinished things begin; a killed process leaves them behind.
TEMPORARY = ".tmp-"


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives a temporary path that becomes `path` if the block succeeds.

    If it does not, nothing of it is left, and what stood at `path` stands there
    still. The temporary path has the same name and lies on the same disk, alone in a
    hidden folder; what is written there is flushed to the disk before it is renamed.
    Folders above `path` are made once the block has succeeded.

    Args:
        path: path of the file or folder to be. A file replaces a file, a folder a
            folder.

    Yields:
        Path, nothing there yet.

    Raises:
        OSError: if it cannot be written (a full disk, say).

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
        _flush_all(temporary)
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(temporary, target, room)
        flush(target.parent)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def write_atomically(path: str | os.PathLike, data: bytes | str) -> None:
    """Writes a file as `replacing` does; a str as UTF-8.

    Example:
    >>> write_atomically("demo/note.txt", "done")
    >>> pathlib.Path("demo/note.txt").read_text()
    'done'
    """
    with replacing(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def flush(path: str | os.PathLike) -> None:
    """Has the disk hold a file, or the names in a folder, before going on."""
    if os.name == "posix":  # Windows opens no folder
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_folder(name: str, value: Any) -> pathlib.Path:
    """Returns the absolute path of a folder that exists or can be made.

    Absolute, because a callback may change the working directory in mid-run.

    Raises:
        ArgumentError: if `value` is no path, or a folder cannot be there.

    Example:
    >>> check_folder("folder", "text.txt/checkpoints")  # text.txt is a file
    Traceback (most recent call last):
    keras_idea.errors.ArgumentError: `folder` must be the path of a folder: ...
    """
    what = f"`{name}` must be the path of a folder"
    mend = f"Received: {name}={value!r}. Give a path, which need not exist yet."
    try:
        path: object = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str) or not path:
        raise ArgumentError(f"{what}. {mend}")
    check_place(pathlib.Path(path), ArgumentError, what, mend, folder=True)
    return pathlib.Path(os.path.abspath(path))


def check_place(
    path: pathlib.Path,
    error: type[Exception],
    what: str,
    mend: str = "",
    folder: bool = False,
) -> None:
    """Refuses a path at which nothing can be made: a file is in its way, say.

    Args:
        path: Path of the file or folder to be.
        error: class of the error to raise.
        what: str, how the message begins: "'a/b' cannot be made".
        mend: str, how it ends: what to do instead.
        folder: bool, whether it is a folder, so that no file may stand there either.

    Example:
    >>> path = pathlib.Path("text.txt/report.html")  # text.txt is a file
    >>> check_place(path, ValueError, "No report", mend="Use another name.")
    Traceback (most recent call last):
    ValueError: No report: 'text.txt' is a file. Use another name.
    """
    above = list(path.parents)
    reason = _in_the_way(path, [path, *above] if folder else above)
    if reason:
        raise error(f"{what}: {reason}.{f' {mend}' if mend else ''}")


def _in_the_way(path: pathlib.Path, folders: list[pathlib.Path]) -> str:
    """Why nothing can be written to a path, or ''; `folders` must not be files."""
    if "\0" in str(path):
        return "it holds a NUL character"
    try:
        os.fsencode(path)
        whole = pathlib.Path(os.path.abspath(path))
        for folder in folders:
            if folder.exists() and not folder.is_dir():
                return f"{str(folder)!r} is a file"
            if folder.is_symlink() and not folder.exists():
                return f"{str(folder)!r} is a link to nothing"
        home = next(folder for folder in (whole, *whole.parents) if folder.is_dir())
    except OSError as error:  # too long, or above it is something unreadable
        return error.strerror or str(error)
    except UnicodeError:
        return "it cannot be encoded as a path"
    longest = os.pathconf(home, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
    if any(len(os.fsencode(part)) > longest for part in whole.parts):
        return f"a name in it is longer than {longest} bytes"
    if not os.access(home, os.W_OK | os.X_OK):
        return f"{str(home)!r} is not writable"
    return ""


def json_digest(value: Any) -> str:
    """A hexadecimal SHA-256 of a JSON-serializable value, the same on every machine.

    Dicts with the same entries are equal in any order, tuples equal lists, and NumPy
    integers are taken as integers.

    Example:
    >>> json_digest({"b": 1, "a": (2,)}) == json_digest({"a": [2], "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, default=operator.index)
    return hashlib.sha256(text.encode()).hexdigest()


def _flush_all(path: pathlib.Path) -> None:
    if path.is_dir():
        for entry in path.iterdir():
            _flush_all(entry)
    flush(path)


def _move(new: pathlib.Path, target: pathlib.Path, room: pathlib.Path) -> None:
    if not (new.is_dir() and target.is_dir()):
        os.replace(new, target)
        return
    # A folder cannot be replaced in one step unless it is empty.
    aside = pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=room)) / target.name
    os.rename(target, aside)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(aside, target)
        raise


# Of a file system that cannot reserve room.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


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


try:
    import fcntl
# Windows: nothing is locked there.
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

# Seconds: `keras-idea status` itself holds the lock for a moment.
_PATIENCE = 1.0


@contextlib.contextmanager
def locked(path: str | os.PathLike) -> Iterator[None]:
    """Holds the lock of a file inside the block.

    A killed process leaves the file behind, but not the lock. On Windows, and on file
    systems without locks, nothing is locked.

    Args:
        path: path of the file. It is made in an existing folder, and removed at the
            end of the block.

    Raises:
        BlockingIOError: if another process holds the lock; its text names the process.

    Example:
    >>> with locked("demo.lock"):
    ...     os.path.exists("demo.lock")
    True
    >>> os.path.exists("demo.lock")
    False
    """
    path = pathlib.Path(path)
    file = _lock(path)
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
    finally:
        if fcntl is None:  # Windows removes no open file
            file.close()
        path.unlink(missing_ok=True)
        file.close()


def _lock(path: pathlib.Path) -> IO[str]:
    """The open file, locked."""
    until = time.monotonic() + _PATIENCE
    while True:
        file = open(path, "a+", encoding="utf-8")
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Else the process that held it has removed it in the meantime.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            if time.monotonic() > until:
                file.seek(0)
                holder = file.read() or "another process"
                file.close()
                raise BlockingIOError(holder) from None
            time.sleep(0.05)
        except FileNotFoundError:
            pass
        except OSError:  # a file system without locks
            return file
        file.close()
