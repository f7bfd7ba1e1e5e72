"""The folder of checkpoints: written whole or not at all, never read unverified."""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea import processes
from keras_idea.errors import CheckpointError
from keras_idea.files import TEMPORARY, json_digest, replacing

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


#: Raised when older checkpoints can no longer be read.
FORMAT = 2
NAME = "manifest.json"


def write_manifest(
    folder: pathlib.Path, step: int, facts: dict, arrays: dict[str, str]
) -> None:
    """Writes the manifest of a checkpoint; `arrays` names the file of each array."""
    files = {name: digest_of_file(folder / name) for name in sorted({*arrays.values()})}
    manifest = {
        "format": FORMAT,
        "step": step,
        "facts": facts,
        "arrays": arrays,
        "files": files,
    }
    manifest["digest"] = digest_of_manifest(manifest)
    (folder / NAME).write_text(json.dumps(manifest), encoding="utf-8")


def verified_manifest(folder: pathlib.Path, files: bool = True) -> dict:
    """Reads a manifest, if it and every file that it names are as they were written.

    With `files=False` the files are not read. Else a `CheckpointError` says what is
    damaged.
    """
    manifest = _read(folder)
    _check_format(manifest.get("format"))
    _check_entries(manifest)
    for name, expected in manifest["files"].items() if files else ():
        path = folder / name
        # A link could lead anywhere, to something without an end too.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise CheckpointError(f"{name} is no plain file.")
        try:
            found = digest_of_file(path)
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read ({error}).") from None
        if found != expected:
            raise CheckpointError(f"{name} has been changed or cut off.")
    return manifest


def digest_of_file(path: pathlib.Path) -> str:
    """The BLAKE2b digest of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def digest_of_manifest(manifest: dict) -> str:
    """The digest of a manifest, which has no "digest" yet, in hexadecimal digits."""
    return json_digest(manifest, hashlib.blake2b)


def _read(folder: pathlib.Path) -> dict:
    try:
        manifest = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{NAME} cannot be read ({error}).") from None
    digest = manifest.pop("digest", None) if isinstance(manifest, dict) else None
    if digest is None or digest != digest_of_manifest(manifest):
        raise CheckpointError(f"{NAME} has been changed.")
    return manifest


def _check_format(saved_format: object) -> None:
    if saved_format != FORMAT:
        raise CheckpointError(
            f"its format is {saved_format}, and this version of the package reads "
            f"{FORMAT}."
        )


def _check_entries(manifest: dict) -> None:
    """Refuses a manifest whose digest fits and that no `write` has made all the same.

    Names are those of files in the folder itself, so that nothing else is read.
    """
    arrays, files = manifest.get("arrays"), manifest.get("files")
    sound = (
        isinstance(manifest.get("step"), int)
        and isinstance(manifest.get("facts"), dict)
        and isinstance(arrays, dict)
        and isinstance(files, dict)
        and all(isinstance(place, str) and place in files for place in arrays.values())
        and all(name == pathlib.PurePath(name).name for name in files)
    )
    if not sound:
        raise CheckpointError(f"{NAME} is not one that this package has written.")


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
        places = []
        for path in self.folder.glob("*step-*"):
            if match := _NAME.fullmatch(path.name):
                places.append((int(match[1] or 0), int(match[2]), path.name))
        return sorted(places)

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
        `CheckpointError`.
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


def _remove(folder: pathlib.Path) -> None:
    # First out of sight: one removed in part would be taken for damaged.
    hidden = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    os.replace(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)
