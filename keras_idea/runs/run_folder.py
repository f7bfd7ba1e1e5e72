"""The folder that a run leaves behind: claimed safely, written atomically."""

import contextlib
import os
import pathlib
import shutil

from keras_idea.errors import RunFolderError

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
_TEMPORARY = ".tmp-"


class RunFolder:
    """A folder that holds one run and nothing else.

    Args:
        path: path of the folder; relative to the working directory.

    Example:
    >>> folder = RunFolder("runs/demo")
    >>> folder.check(overwrite=False)  # before any work
    >>> folder.claim()                 # once the run can begin
    >>> folder.write("table.md", table)
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def check(self, overwrite=False):
        """Refuses a folder that may not be written to.

        Args:
            overwrite: bool, whether an earlier run may be replaced. A folder that
                holds anything else is refused all the same.

        Raises:
            RunFolderError: if the folder is a file, holds a run and `overwrite`
                is False, or holds something that no run wrote.
        """
        for parent in (self.path, *self.path.parents):
            if parent.exists() and not parent.is_dir():
                raise RunFolderError(
                    f"The run folder {str(self.path)!r} cannot be made: "
                    f"{str(parent)!r} is a file. Give another folder with --output."
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

    def unfinished(self):
        """Path of the config of the unfinished run that the folder holds, or None."""
        config = self.path / "config.toml"
        ended = (self.path / _LAST).exists() or not config.is_file()
        return None if ended else config

    def checkpoints(self, training):
        """Path of the folder for the checkpoints of one of the run's trainings."""
        return self.path / "checkpoints" / training.replace(" ", "-")

    def tensorboard(self, training):
        """Path of the folder for the TensorBoard logs of one of its trainings."""
        return self.path / "tensorboard" / training.replace(" ", "-")

    def remove_checkpoints(self):
        """Frees what only an unfinished run needs."""
        _remove(self.path / "checkpoints")

    def claim(self):
        """Makes the folder, or empties it of the earlier run."""
        self.path.mkdir(parents=True, exist_ok=True)
        for entry in self._entries():
            if _ours(entry):
                _remove(entry)

    @contextlib.contextmanager
    def replacing(self, name):
        """Gives a temporary path that becomes `name` once it is written whole.

        Args:
            name: str, one of `FILES`, or of `FOLDERS` to make a folder.

        Yields:
            Path to write to, with the same suffix; nothing is there yet.
        """
        assert name in FILES + FOLDERS, name
        temporary, final = self.path / f"{_TEMPORARY}{name}", self.path / name
        try:
            yield temporary
            if name in FOLDERS:  # one that is not empty cannot be replaced
                _remove(final)
            os.replace(temporary, final)
        finally:
            _remove(temporary)

    def write(self, name, text):
        """Writes text, whole or not at all.

        Args:
            name: str, one of `FILES`.
            text: str.
        """
        with self.replacing(name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")

    def _entries(self):
        return sorted(self.path.iterdir()) if self.path.is_dir() else []


def _ours(entry):
    name = entry.name.removeprefix(_TEMPORARY)
    if entry.is_dir():
        return name in FOLDERS and not entry.is_symlink()
    return entry.is_file() and name in FILES


def _remove(entry):
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
