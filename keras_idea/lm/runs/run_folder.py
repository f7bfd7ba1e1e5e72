"""The folder that a run leaves behind: claimed safely, written atomically."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from keras_idea.callbacks.checkpoint.files import CheckpointFiles
from keras_idea.errors import RunFolderError
from keras_idea.files import (
    TEMPORARY,
    check_place,
    check_room,
    locked,
    replacing,
    reserve,
    writing,
)
from keras_idea_cli.locks import is_locked
from keras_idea_cli.run_files import LAST, LOCK

_CONFIG = "config.toml"
FILES = (
    _CONFIG,
    "metrics.csv",
    "run.png",
    "table.md",
    "table.json",
    "sample.txt",
    "narrow.keras",
    "full.keras",
    "widths.json",
)
FOLDERS = ("preset", "widths", "checkpoints", "tensorboard")
_CURE = (
    "Free space on that disk, or make the folder writable; the same command resumes "
    "the run."
)


class RunFolder:
    """A folder that holds one run and nothing else.

    Args:
        path: path of the folder; relative to the working directory of this moment.

    Attributes:
        path: Path, absolute.
        shown: str, the path as it was given, for messages.

    Example:
    >>> folder = RunFolder("runs/demo")
    >>> folder.check(overwrite=False)  # before any work
    >>> with folder.locked():
    ...     folder.claim("[run]")  # once the run can begin
    ...     folder.write("table.md", "| model | bits/byte |")
    """

    def __init__(self, path: str | os.PathLike):
        self.shown = str(pathlib.Path(path))
        self.path = pathlib.Path(os.path.abspath(path))

    def check(self, overwrite: bool = False) -> None:
        """Refuses a folder that may not be written to, with a `RunFolderError`.

        Args:
            overwrite: bool, whether an earlier run may be replaced. A folder that
                holds anything else is refused all the same.
        """
        self._check_path()
        entries = self._entries()
        if all(map(_is_leftover, entries)):
            return
        foreign = sorted(entry.name for entry in entries if not _ours(entry))
        if foreign or not (self.path / _CONFIG).is_file():
            holds = foreign[0] if foreign else entries[0].name
            raise RunFolderError(
                f"{self.shown!r} is no run folder (it holds {holds!r}) and is "
                "never overwritten. Give another folder with --output."
            )
        if not overwrite:
            raise RunFolderError(
                f"{self.shown!r} holds a run already. Give another folder with "
                "--output, or --overwrite to replace that run."
            )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from carrying out a run in the folder.

        The folder is made for it, and removed if it is empty in the end. The lock ends
        with the process, even if that is killed. Windows has no such lock.

        Raises:
            RunFolderError: if another process holds the folder.
            DiskError: if the folder cannot be written to.
        """
        self._check_path()
        new_folders = [
            path for path in (self.path, *self.path.parents) if not path.exists()
        ]
        try:
            with contextlib.ExitStack() as stack:
                with writing("The run folder", self.path, _CURE):
                    self.path.mkdir(parents=True, exist_ok=True)
                    self._lock(stack)
                yield
        finally:
            with contextlib.suppress(OSError):  # not empty, or not made
                for path in new_folders:
                    path.rmdir()

    def _lock(self, stack: contextlib.ExitStack) -> None:
        try:
            stack.enter_context(locked(self.path / LOCK))
        except BlockingIOError as error:
            raise RunFolderError(
                "Another process carries out a run in this folder. Received: "
                f"{self.shown!r}, held by {error}. Wait until that run ends, or "
                "give another folder with --output."
            ) from None

    def is_running(self) -> bool:
        """Whether a live process carries out a run in the folder.

        False on Windows, where it cannot be known.
        """
        self._check_path()
        return is_locked(self.path / LOCK) is True

    def unfinished(self) -> pathlib.Path | None:
        """Path of the config of the unfinished run that the folder holds, or None."""
        self._check_path()
        config = self.path / _CONFIG
        ended = (self.path / LAST).exists() or not config.is_file()
        return None if ended else config

    def checkpoints(self, training: str) -> pathlib.Path:
        """Path of the folder for the checkpoints of one of the run's trainings."""
        return self.path / "checkpoints" / training.replace(" ", "-")

    def checkpoint_files(self) -> list[CheckpointFiles]:
        """Of each training of the run that has left some, its checkpoints."""
        return [CheckpointFiles(path) for path in self.path.glob("checkpoints/*")]

    def has_checkpoints(self) -> bool:
        """Whether a training of the run has left a checkpoint, damaged or not."""
        return any(files.names() for files in self.checkpoint_files())

    def tensorboard(self, training: str) -> pathlib.Path:
        """Path of the folder for the TensorBoard logs of one of its trainings."""
        return self.path / "tensorboard" / training.replace(" ", "-")

    def remove_checkpoints(self) -> None:
        """Frees what only an unfinished run needs, or left when it was killed."""
        _remove(self.path / "checkpoints")
        for entry in self._entries():
            if _is_leftover(entry):
                _remove(entry)

    def claim(self, config: str) -> None:
        """Makes the folder, or empties it of the earlier run; writes the config.

        If it is killed meanwhile, the earlier run is there whole, or an unfinished run
        of the earlier config without some of its files: it may be overwritten, or
        begins again.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # What tells that the run is finished goes first, its config never.
        earlier = [path for path in self._entries() if _ours(path)]
        for entry in sorted(earlier, key=lambda path: path.name != LAST):
            if entry.name != _CONFIG:
                _remove(entry)
        self.write(_CONFIG, config)

    @contextlib.contextmanager
    def replacing(self, name: str, size: int = 0) -> Iterator[pathlib.Path]:
        """Gives a temporary path that becomes `name` once it is written whole.

        Args:
            name: str, one of `FILES`, or of `FOLDERS` to make a folder.
            size: int, bytes that must be free for it.

        Raises:
            DiskError: if it cannot be written.
        """
        assert name in FILES + FOLDERS, name
        with writing(name, self.path, _CURE):
            if size:
                check_room(self.path, size, name, _CURE)
                reserve(self.path, size)
            with replacing(self.path / name) as path:
                yield path

    def write(self, name: str, text: str) -> None:
        """Writes the text of one of `FILES`, as `replacing`."""
        with self.replacing(name) as path:
            path.write_bytes(text.encode())

    def _check_path(self) -> None:
        check_place(
            self.path,
            RunFolderError,
            f"The run folder {self.shown!r} cannot be made",
            "Give another folder with --output.",
            folder=True,
        )

    def _entries(self) -> list[pathlib.Path]:
        if not self.path.is_dir():
            return []
        return sorted(path for path in self.path.iterdir() if path.name != LOCK)


def _ours(entry: pathlib.Path) -> bool:
    if entry.is_dir():
        known = entry.name in FOLDERS and not entry.is_symlink()
        return known or _is_leftover(entry)
    return entry.is_file() and entry.name in FILES


def _is_leftover(entry: pathlib.Path) -> bool:
    """Whether a run that was killed left it, and nothing else is in it."""
    hidden = entry.name.startswith(TEMPORARY) and not entry.is_symlink()
    return hidden and entry.is_dir() and all(map(_ours, entry.iterdir()))


def _remove(entry: pathlib.Path) -> None:
    if not entry.is_dir():
        entry.unlink(missing_ok=True)
    elif _is_leftover(entry):
        shutil.rmtree(entry)
    else:
        # First out of sight: checkpoints removed in part would be taken for damaged.
        room = pathlib.Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=entry.parent))
        os.replace(entry, room / entry.name)
        shutil.rmtree(room)
