"""The folder that a run leaves behind: claimed safely, written atomically."""

import os
import pathlib
import shutil
from contextlib import AbstractContextManager

from keras_idea.errors import RunFolderError
from keras_idea.files import TEMPORARY, check_parents, replacing, write_atomically

FILES = (
    "config.toml",
    "metrics.csv",
    "run.png",
    "table.md",
    "table.json",
    "sample.txt",
    "narrow.keras",
)
FOLDERS = ("preset", "checkpoints", "tensorboard")
#: Written last: a run without it has not come to its end.
_LAST = "sample.txt"


class RunFolder:
    """A folder that holds one run and nothing else.

    Args:
        path: path of the folder; relative to the working directory.

    Example:
    >>> folder = RunFolder("runs/demo")
    >>> folder.check(overwrite=False)  # before any work
    >>> folder.claim()  # once the run can begin
    >>> folder.write("table.md", "| model | bits/byte |")
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)

    def check(self, overwrite: bool = False) -> None:
        """Refuses a folder that may not be written to.

        Args:
            overwrite: bool, whether an earlier run may be replaced. A folder that
                holds anything else is refused all the same.

        Raises:
            RunFolderError: if the folder is a file, holds a run and `overwrite`
                is False, or holds something that no run wrote.
        """
        check_parents(
            self.path,
            RunFolderError,
            f"The run folder {str(self.path)!r} cannot be made",
            "Give another folder with --output.",
        )
        found = self._entries()
        if not found:
            return
        foreign = sorted(entry.name for entry in found if not _ours(entry))
        if foreign or not (self.path / "config.toml").is_file():
            holds = foreign[0] if foreign else found[0].name
            raise RunFolderError(
                f"{str(self.path)!r} is no run folder (it holds {holds!r}) and is "
                "never overwritten. Give another folder with --output."
            )
        if not overwrite:
            raise RunFolderError(
                f"{str(self.path)!r} holds a run already. Give another folder with "
                "--output, or --overwrite to replace that run."
            )

    def unfinished(self) -> pathlib.Path | None:
        """Path of the config of the unfinished run that the folder holds, or None."""
        config = self.path / "config.toml"
        ended = (self.path / _LAST).exists() or not config.is_file()
        return None if ended else config

    def checkpoints(self, training: str) -> pathlib.Path:
        """Path of the folder for the checkpoints of one of the run's trainings."""
        return self.path / "checkpoints" / training.replace(" ", "-")

    def tensorboard(self, training: str) -> pathlib.Path:
        """Path of the folder for the TensorBoard logs of one of its trainings."""
        return self.path / "tensorboard" / training.replace(" ", "-")

    def remove_checkpoints(self) -> None:
        """Frees what only an unfinished run needs, or left when it was killed."""
        _remove(self.path / "checkpoints")
        for entry in self._entries():
            if _is_leftover(entry):
                _remove(entry)

    def claim(self) -> None:
        """Makes the folder, or empties it of the earlier run."""
        self.path.mkdir(parents=True, exist_ok=True)
        for entry in self._entries():
            if _ours(entry):
                _remove(entry)

    def replacing(self, name: str) -> AbstractContextManager[pathlib.Path]:
        """Gives a temporary path that becomes `name` once it is written whole.

        Args:
            name: str, one of `FILES`, or of `FOLDERS` to make a folder.

        Returns:
            Context manager of a Path to write to, with the same name; nothing is
            there yet.
        """
        assert name in FILES + FOLDERS, name
        return replacing(self.path / name)

    def write(self, name: str, text: str) -> None:
        """Writes text, whole or not at all.

        Args:
            name: str, one of `FILES`.
            text: str.
        """
        assert name in FILES, name
        write_atomically(self.path / name, text)

    def _entries(self) -> list[pathlib.Path]:
        return sorted(self.path.iterdir()) if self.path.is_dir() else []


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
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
