"""A checkpoint's arrays on the disk: files of a limited size, read one by one."""

import contextlib
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea import processes
from keras_idea.errors import CheckpointError

# What a process says of its files, until the manifest is written.
_PART = "part-"
# Between the name of an array and where a piece of it begins: "kernel#0,128".
_AT = "#"


def write_part(
    folder: pathlib.Path,
    arrays: Iterable[tuple[str, Callable[[], np.ndarray]]],
    shard_bytes: int,
) -> None:
    """Writes one process's arrays to files, one file's worth of them in memory.

    A file has `shard_bytes` at most; a larger array has one for itself.
    """
    places: dict[str, str] = {}
    shard: dict[str, np.ndarray] = {}
    count = size = 0
    own = f"{processes.index():04d}-" if processes.count() > 1 else ""

    def write_shard() -> None:
        name = f"arrays-{own}{count:05d}.safetensors"
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
    (folder / f"{_PART}{own}.json").write_text(json.dumps(places), encoding="utf-8")


def read_parts(folder: pathlib.Path) -> dict[str, str]:
    """Reads, and removes, what each process said: name of an array -> its file."""
    places: dict[str, str] = {}
    for path in sorted(folder.glob(f"{_PART}*.json")):
        places.update(json.loads(path.read_text(encoding="utf-8")))
        path.unlink()
    return places


def piece_name(name: str, start: Sequence[int]) -> str:
    """The name of a piece of an array, which begins at `start`."""
    return f"{name}{_AT}{','.join(map(str, start))}"


class SavedCheckpoint:
    """One verified checkpoint.

    `step` are the optimizer steps done, `facts` what `CheckpointFiles.write` was given.
    """

    def __init__(self, folder: pathlib.Path, manifest: dict) -> None:
        self.folder = folder
        self.step: int = manifest["step"]
        self.facts: dict = manifest["facts"]
        self._files: dict[str, str] = manifest["arrays"]
        # By the name of an array those of its pieces, most often itself alone.
        self._pieces: dict[str, list[str]] = {}
        for name in self._files:
            self._pieces.setdefault(name.partition(_AT)[0], []).append(name)

    @property
    def names(self) -> list[str]:
        """List of str, the names of its arrays; several processes' are in no order."""
        return list(self._pieces)

    def shape(self, name: str) -> tuple[int, ...]:
        """Tuple of int, the shape of an array, which is not read for it."""
        ends = []
        for piece in self._pieces[name]:
            with self._open(piece) as file:
                shape = file.get_slice(piece).get_shape()
            ends.append(np.add(_start(piece, len(shape)), shape))
        return tuple(np.max(ends, axis=0).tolist())

    def array(self, name: str) -> np.ndarray:
        """The NumPy array of a name, put together if it lies in pieces."""
        pieces = []
        for piece in self._pieces[name]:
            with self._open(piece) as file:
                pieces.append((piece, file.get_tensor(piece)))
        if len(pieces) == 1:
            return pieces[0][1]
        whole = np.empty(self.shape(name), pieces[0][1].dtype)
        for piece, values in pieces:
            places = zip(_start(piece, values.ndim), values.shape, strict=True)
            whole[tuple(slice(first, first + n) for first, n in places)] = values
        return whole

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator[safe_open]:
        try:
            with safe_open(self.folder / self._files[name], "np") as file:
                yield file
        except SafetensorError as error:
            raise CheckpointError(
                f"{self.folder.name}: {self._files[name]} does not hold what its "
                f"manifest says ({error}). Delete {str(self.folder)!r}; the run "
                "resumes from the checkpoint before."
            ) from error


def _start(piece: str, rank: int) -> list[int]:
    """Where in its array a piece begins."""
    _, _, start = piece.partition(_AT)
    return [int(place) for place in start.split(",")] if start else [0] * rank
