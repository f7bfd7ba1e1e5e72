"""The folder of checkpoints: written whole or not at all, never read unverified."""

import contextlib
import os
import pathlib
import re
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from keras_idea import processes
from keras_idea.callbacks.checkpoint.arrays import (
    SavedCheckpoint,
    read_parts,
    write_part,
)
from keras_idea.callbacks.checkpoint.manifest import (
    verified_manifest,
    write_manifest,
)
from keras_idea.errors import CheckpointError, FormatError
from keras_idea.files import TEMPORARY, replacing
from keras_idea.locks import locked

_LOCK = ".lock"
# A checkpoint's place in the order of writing, and its step. Earlier versions of the
# package wrote the step alone.
_NAME = re.compile(r"(?:checkpoint-(\d+)-)?step-(\d+)(?:-[0-9a-f]+)?")


class CheckpointFiles:
    """The last few checkpoints of a run.

        <folder>/checkpoint-000003-step-00000750-1f0c5a9e/manifest.json
        <folder>/checkpoint-000003-step-00000750-1f0c5a9e/arrays-00000.safetensors

    A checkpoint is written under a temporary name, flushed to the disk, and then
    renamed. Its arrays go into files of a limited size, so that no more than one
    file's worth of them is copied to the host at once.

    The first number of a name only rises: the newest checkpoint is the last one
    written, whatever its step. The name ends with letters of its writer's own, so that
    two writers never replace each other's.

    Example:
    >>> files = CheckpointFiles("runs/mine/checkpoints")
    >>> name = files.write(100, [("kernel", lambda: np.ones(3))], {"width": 8})
    >>> files.newest().array("kernel")
    array([1., 1., 1.])
    """

    def __init__(
        self, folder: str | os.PathLike, keep: int = 3, shard_bytes: int = 2**30
    ):
        self.folder = pathlib.Path(os.path.abspath(folder))
        self._keep, self._shard_bytes = keep, shard_bytes
        self._writer = uuid.uuid4().hex[:8]

    def write(
        self,
        step: int,
        arrays: Iterable[tuple[str, Callable[[], np.ndarray]]],
        facts: dict,
    ) -> str:
        """Writes a checkpoint, then removes the oldest that are too many.

        Of several processes all must call it; each gives the arrays that it alone
        holds, as functions by name, into files of its own. Where it fails (`OSError`: a
        full disk; `CheckpointError`: another process is writing), what was there before
        is left as it was. Returns the name of its folder.
        """
        with self._new_folder(step) as folder:
            processes.on_each(lambda: write_part(folder, arrays, self._shard_bytes))
            if processes.is_first():
                write_manifest(folder, step, facts, read_parts(folder))
        if processes.is_first():
            for name in self.names()[: -self._keep]:
                _remove(self.folder / name)
        return folder.name

    def names(self) -> list[str]:
        """List of str, the names of all checkpoints, damaged or not; oldest first."""
        return [name for _, _, name in self._places()]

    def _places(self) -> list[tuple[int, int, str]]:
        """Of each checkpoint its place in the order of writing, step and name."""
        found = []
        for path in self.folder.glob("*step-*"):
            if match := _NAME.fullmatch(path.name):
                found.append((int(match[1] or 0), int(match[2]), path.name))
        return sorted(found)

    def prepare(self) -> None:
        """Makes the folder. Raises `OSError` if nothing can be written to it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=self.folder).cleanup()

    @contextlib.contextmanager
    def _new_folder(self, step: int) -> Iterator[pathlib.Path]:
        """A folder that all processes write to, and the first puts in its place."""
        with contextlib.ExitStack() as stack:

            def make() -> str:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock(stack)
                # What a killed process has left unfinished.
                for path in self.folder.glob(f"{TEMPORARY}*"):
                    shutil.rmtree(path, ignore_errors=True)
                number = 1 + max((place for place, *_ in self._places()), default=0)
                name = f"checkpoint-{number:06d}-step-{step:08d}-{self._writer}"
                folder = stack.enter_context(replacing(self.folder / name))
                folder.mkdir()
                return str(folder)

            yield pathlib.Path(processes.from_first(make))

    def newest(self) -> SavedCheckpoint | None:
        """The newest checkpoint that is whole; None if there is none at all.

        Damaged ones are passed over with a warning; if all are, it is a
        `CheckpointError`. One of an earlier version of the package is a `FormatError`.
        """
        name = processes.from_first(self._newest_name)
        if name is None:
            return None
        # Of several processes the first alone has read all files for their digests.
        folder = self.folder / name
        return SavedCheckpoint(folder, verified_manifest(folder, files=False))

    def _newest_name(self) -> str | None:
        """The name of the newest folder that is whole, if there is any."""
        reasons = []
        for name in reversed(self.names()):
            try:
                verified_manifest(self.folder / name)
                return name
            except FormatError:
                raise
            except CheckpointError as error:
                reasons.append(f"of {name} {error}")
                warnings.warn(
                    f"The checkpoint {name} is damaged and is ignored: {error}",
                    stacklevel=2,
                )
        if reasons:
            raise CheckpointError(
                f"All checkpoints in {str(self.folder)!r} are damaged: {reasons[0]} "
                "Restore one from a copy, or delete that folder to begin again."
            )
        return None

    def _lock(self, stack: contextlib.ExitStack) -> None:
        """Else what another writer has not finished would be taken for a leftover."""
        try:
            stack.enter_context(locked(self.folder / _LOCK))
        except BlockingIOError as error:
            raise CheckpointError(
                "Another process is writing to this folder of checkpoints. Received: "
                f"folder={str(self.folder)!r}, held by {error}. Use another folder, or "
                "end one of the two runs."
            ) from None


def _remove(folder: pathlib.Path) -> None:
    # First out of sight: one removed in part would be taken for damaged.
    hidden = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    os.replace(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
