"""Whether a live process holds the lock of a file; for `status`, without Keras."""

import os
import pathlib

try:
    import fcntl
# Windows: nothing is locked there.
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]


def is_locked(path: str | os.PathLike) -> bool | None:
    """Whether a live process holds a file's lock; None: unknown, as on Windows."""
    if not pathlib.Path(path).exists():
        return False
    if fcntl is None:
        return None
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError) as error:
        return isinstance(error, BlockingIOError)
    except OSError:
        return None
    return False
