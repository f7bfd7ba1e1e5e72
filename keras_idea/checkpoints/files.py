"""The folder of checkpoints: written whole or not at all, never read unverified."""

import contextlib
import os
import pathlib
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from keras_idea import processes
from keras_idea.checkpoints.arrays import SavedCheckpoint, read_parts, write_part
from keras_idea.checkpoints.manifest import verified_manifest, write_manifest
from keras_idea.errors import CheckpointError, FormatError
from keras_idea.files import TEMPORARY, replacing


class CheckpointFiles:
    """The last few checkpoints of a run.

        <folder>/step-00000750/manifest.json             what it holds, with digests
        <folder>/step-00000750/arrays-00000.safetensors

    A checkpoint is written under a temporary name, flushed to the disk, and then
    renamed. Its arrays go into files of a limited size, so that no more than one
    file's worth of them is copied to the host at once.

    Args:
        folder: path.
        keep: int >= 1, how many are kept. Default 3.
        shard_bytes: int, size of a file of arrays; a larger array has one for
            itself. Default 1 GiB.

    Example:
    >>> files = CheckpointFiles("runs/mine/checkpoints")
    >>> files.write(100, [("kernel", lambda: np.ones(3))], {"width": 8})
    >>> files.newest().array("kernel")
    array([1., 1., 1.])
    """

    def __init__(
        self, folder: str | os.PathLike, keep: int = 3, shard_bytes: int = 2**30
    ):
        self.folder = pathlib.Path(folder)
        self._keep, self._shard_bytes = keep, shard_bytes

    def write(
        self,
        step: int,
        arrays: Iterable[tuple[str, Callable[[], np.ndarray]]],
        facts: dict,
    ) -> None:
        """Writes a checkpoint, then removes those that are too many.

        Of several processes all must call it; each gives the arrays that it alone
        holds, into files of its own.

        Args:
            step: int, optimizer steps done. A checkpoint of the same step is
                replaced.
            arrays: iterable of (name, function that returns a NumPy array).
            facts: dict that JSON can hold.

        Raises:
            OSError: if it cannot be written (a full disk, say). What was there
                before is left as it was.
        """
        with self._new_folder(f"step-{step:08d}") as folder:
            write_part(folder, arrays, self._shard_bytes)
            if processes.is_first():
                write_manifest(folder, step, facts, read_parts(folder))
        if processes.is_first():
            for folder in self._saved()[: -self._keep]:
                _remove(folder)

    @contextlib.contextmanager
    def _new_folder(self, name: str) -> Iterator[pathlib.Path]:
        """A folder that all processes write to, and the first puts in its place."""
        with contextlib.ExitStack() as stack:

            def make() -> str:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._clear_leftovers()
                folder = stack.enter_context(replacing(self.folder / name))
                folder.mkdir()
                return str(folder)

            yield pathlib.Path(processes.from_first(make))

    def newest(self) -> SavedCheckpoint | None:
        """The newest checkpoint that is whole.

        Damaged ones are passed over with a warning that names the damage.

        Returns:
            `SavedCheckpoint`, or None if there is none at all.

        Raises:
            CheckpointError: if there are checkpoints and all are damaged.
        """
        name = processes.from_first(self._newest_name)
        if name is None:
            return None
        # Of several processes the first alone has read all files for their digests.
        folder = self.folder / name
        return SavedCheckpoint(folder, verified_manifest(folder, files=False))

    def _newest_name(self) -> str | None:
        """The name of the newest folder that is whole, if there is any."""
        saved, reasons = self._saved(), []
        for folder in reversed(saved):
            try:
                verified_manifest(folder)
                return folder.name
            except FormatError:
                raise
            except CheckpointError as error:
                reasons.append(f"of {folder.name} {error}")
                warnings.warn(
                    f"The checkpoint {folder.name} is damaged and is passed over: "
                    f"{error}",
                    stacklevel=2,
                )
        if saved:
            raise CheckpointError(
                f"All checkpoints in {str(self.folder)!r} are damaged: {reasons[0]} "
                "Restore one from a copy, or delete that folder to begin anew."
            )
        return None

    def _clear_leftovers(self) -> None:
        """Removes what a killed process has left unfinished."""
        for path in self.folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _saved(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob("step-*"))


def _remove(folder: pathlib.Path) -> None:
    # First out of sight: one removed in part would be taken for damaged.
    hidden = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    os.replace(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
