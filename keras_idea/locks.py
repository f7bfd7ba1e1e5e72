"""A lock on a file that ends with the process that holds it, however that ends."""

import contextlib
import os
import pathlib
import socket
import time
from collections.abc import Iterator
from typing import IO

try:
    import fcntl
# Windows: nothing is locked there.
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]

# Seconds: `keras_idea_cli.locks.is_locked` itself holds the lock for a moment.
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
