"""A checkpoint's arrays on the disk: files of a limited size, read one by one."""

import contextlib
import pathlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea.errors import CheckpointError


def write_arrays(
    folder: pathlib.Path,
    arrays: Iterable[tuple[str, Callable[[], np.ndarray]]],
    shard_bytes: int,
) -> dict[str, str]:
    """Writes arrays to files, no more than one file's worth of them in memory.

    Args:
        folder: Path of a folder that is there.
        arrays: iterable of (name, function that returns a NumPy array).
        shard_bytes: int, size of a file; a larger array has one for itself.

    Returns:
        dict of an array's name to its file's.

    Raises:
        OSError: if a file cannot be written.
    """
    places: dict[str, str] = {}
    shard: dict[str, np.ndarray] = {}
    count = size = 0

    def write_shard() -> None:
        name = f"arrays-{count:05d}.safetensors"
        try:
            save_file(shard, folder / name)
        except SafetensorError as error:
            raise OSError(f"{name}: {error}") from error
        places.update(dict.fromkeys(shard, name))

    for name, read in arrays:
        array = read()
        if shard and size + array.nbytes > shard_bytes:
            write_shard()
            shard, size, count = {}, 0, count + 1
        shard[name] = array
        size += array.nbytes
    write_shard()
    return places


class SavedCheckpoint:
    """One verified checkpoint.

    Args:
        folder: Path of its folder.
        manifest: dict, what `manifest.json` holds.

    Attributes:
        folder: Path.
        step: int, optimizer steps done.
        facts: dict, as it was given to `CheckpointFiles.write`.
    """

    def __init__(self, folder: pathlib.Path, manifest: dict) -> None:
        self.folder = folder
        self.step: int = manifest["step"]
        self.facts: dict = manifest["facts"]
        self._files: dict[str, str] = manifest["arrays"]

    @property
    def names(self) -> list[str]:
        """List of str, the names of its arrays in their order."""
        return list(self._files)

    def shape(self, name: str) -> tuple[int, ...]:
        """Tuple of int, the shape of an array, which is not read for it."""
        with self._open(name) as file:
            return tuple(file.get_slice(name).get_shape())

    def array(self, name: str) -> np.ndarray:
        """The NumPy array of a name."""
        with self._open(name) as file:
            return file.get_tensor(name)

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[safe_open]:
        try:
            with safe_open(self.folder / self._files[name], "np") as file:
                yield file
        except SafetensorError as error:
            raise CheckpointError(
                f"{self.folder.name}: {self._files[name]} does not hold what its "
                f"manifest says ({error}). Delete {str(self.folder)!r}; the run goes "
                "on from the checkpoint before."
            ) from error
