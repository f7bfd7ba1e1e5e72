"""Where an export goes: written beside its place, moved there once it is checked."""

import contextlib
import dataclasses
import fnmatch
import os
import pathlib
import shutil
import tempfile

from keras_idea.errors import ExportRefused


@dataclasses.dataclass(frozen=True)
class Kind:
    """What one kind of export leaves behind.

    Args:
        what: str, its name in messages.
        names: tuple of str, patterns of the entries of its folder; empty if it is
            a file.
        marks: tuple of str, entries that every such folder has.
        suffix: str, how the name of its file ends.
    """

    what: str
    names: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    suffix: str = ""


def check_target(path, kind, overwrite=False):
    """Refuses a path that may not be written to.

    Args:
        path: str or path, where the export is to go.
        kind: `Kind`.
        overwrite: bool, whether an earlier export of this kind may be replaced.
            Anything else that stands there is refused all the same.

    Raises:
        ExportRefused: if the path is taken, or cannot be; what to do about it.
    """
    if not str(path):
        raise ExportRefused(f"{kind.what} needs a path. Received: ''.")
    target = _absolute(path)
    if not target.name.endswith(kind.suffix):
        raise ExportRefused(
            f"The name of {kind.what} ends in {kind.suffix!r}. Received: {str(path)!r}."
        )
    for parent in target.parents:
        if parent.exists() and not parent.is_dir():
            raise ExportRefused(
                f"{str(path)!r} cannot be made: {str(parent)!r} is a file."
            )
    if not target.exists() or (target.is_dir() and kind.names and _is_empty(target)):
        return
    foreign = _foreign(target, kind)
    if foreign:
        raise ExportRefused(
            f"{str(path)!r} is not {kind.what} ({foreign}) and is never overwritten. "
            "Give another path."
        )
    if not overwrite:
        raise ExportRefused(
            f"{str(path)!r} exists already. Give another path, or --overwrite to "
            "replace it."
        )


@contextlib.contextmanager
def replacing(path):
    """Gives a temporary path that becomes `path` if the block succeeds.

    If it does not, nothing of it is left, and what stood at `path` stands there
    still. The temporary path has the same name and lies on the same disk.

    Args:
        path: str or path of a file or folder, checked by `check_target`.

    Yields:
        Path, nothing there yet.

    Raises:
        ExportRefused: if no folder can be made there.

    Example:
    >>> with replacing("runs/demo/hf") as temporary:
    ...     write(temporary)
    ...     check(temporary)
    """
    target = _absolute(path)
    home = next(parent for parent in target.parents if parent.exists())
    try:
        room = pathlib.Path(tempfile.mkdtemp(prefix=f".tmp-{target.name}-", dir=home))
    except OSError as error:
        raise ExportRefused(f"{str(path)!r} cannot be written: {error}.") from None
    try:
        # The folder below has the permissions that any new one has.
        temporary = room / "new" / target.name
        temporary.parent.mkdir()
        yield temporary
        target.parent.mkdir(parents=True, exist_ok=True)
        _move(temporary, target, aside=room / "earlier")
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _move(new, target, aside):
    if not target.is_dir():
        os.replace(new, target)
        return
    # A folder cannot be replaced in one step unless it is empty.
    os.rename(target, aside)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(aside, target)
        raise


def _foreign(target, kind):
    """What stands there that no such export wrote, in words, or ''."""
    if not kind.names:
        return "it is a folder" if target.is_dir() else ""
    if not target.is_dir():
        return "it is a file"
    names = sorted(entry.name for entry in target.iterdir())
    for name in names:
        if not any(fnmatch.fnmatch(name, pattern) for pattern in kind.names):
            return f"it holds {name!r}"
    missing = [mark for mark in kind.marks if mark not in names]
    return f"it has no {missing[0]!r}" if missing else ""


def _is_empty(folder):
    return not any(folder.iterdir())


def _absolute(path):
    return pathlib.Path(os.path.abspath(path))
