"""Tokens written to the shards of a cache, and the folder they appear in at once."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import time
import uuid
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from keras_idea.files import flush

_TEMPORARY = ".tmp"
# A build writes every few seconds, and shows it on other hosts within minutes.
_IDLE_SECONDS = 3600


class ShardWriter:
    """Writes a stream of tokens to files of `shard_tokens` tokens each.

    Attributes:
        shards: list of dicts of "name", "tokens" and "sha256", after `close`.
    """

    def __init__(
        self, folder: pathlib.Path, dtype: np.dtype, shard_tokens: int
    ) -> None:
        self.folder, self.dtype, self.shard_tokens = folder, dtype, shard_tokens
        self.shards: list[dict] = []
        self.tokens = 0
        self._file: BinaryIO | None = None

    def write(self, tokens: np.ndarray) -> None:
        """Adds an array of the writer's dtype."""
        while len(tokens):
            if self._file is None:
                name = f"shard-{len(self.shards):05}.bin"
                self._file = (self.folder / name).open("xb")
                self._sum, self._size = hashlib.sha256(), 0
            part = tokens[: self.shard_tokens - self._size]
            tokens = tokens[len(part) :]
            data = part.tobytes()
            self._file.write(data)
            self._sum.update(data)
            self._size += len(part)
            self.tokens += len(part)
            if self._size == self.shard_tokens:
                self.close()

    def close(self) -> None:
        """Ends the file that is being written, on the disk."""
        if self._file is None:
            return
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        name = pathlib.Path(file.name).name
        sha256 = self._sum.hexdigest()
        self.shards.append({"name": name, "tokens": self._size, "sha256": sha256})
        self._file = None

    def abandon(self) -> None:
        """Closes the file that is being written, whatever is in it."""
        if self._file is not None:
            self._file.close()


@contextlib.contextmanager
def new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder that exists with all its files, or not at all.

    Its files are written under another name, which it loses at the end; if the block
    raises, they are removed. Of several processes that make the same folder at once,
    the first to end gives it; what the others made is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}{_TEMPORARY}")
    temporary.mkdir()
    try:
        yield temporary
        flush(temporary)
        try:
            temporary.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        flush(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_abandoned(folder: pathlib.Path) -> None:
    """Removes what killed builds left: folders in which nothing was written lately.

    A lock would not do: on shared storage, other hosts may not see it.
    """
    for left in folder.glob(f".*{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            written = max(path.stat().st_mtime for path in (left, *left.iterdir()))
            if time.time() - written > _IDLE_SECONDS:
                shutil.rmtree(left)
