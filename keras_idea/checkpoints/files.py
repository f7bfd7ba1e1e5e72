"""Checkpoints as files: written whole or not at all, and never read unverified."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import warnings

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_idea.errors import CheckpointError, FormatError

#: Raised when older checkpoints can no longer be read.
FORMAT = 2
_MANIFEST, _TEMPORARY = "manifest.json", ".tmp-"


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

    def __init__(self, folder, manifest):
        self.folder = folder
        self.step = manifest["step"]
        self.facts = manifest["facts"]
        self._files = manifest["arrays"]

    @property
    def names(self):
        """List of str, the names of its arrays in their order."""
        return list(self._files)

    def shape(self, name):
        """Tuple of int, the shape of an array, which is not read for it."""
        with self._open(name) as file:
            return tuple(file.get_slice(name).get_shape())

    def array(self, name):
        """The NumPy array of a name."""
        with self._open(name) as file:
            return file.get_tensor(name)

    @contextlib.contextmanager
    def _open(self, name):
        try:
            with safe_open(self.folder / self._files[name], "np") as file:
                yield file
        except SafetensorError as error:
            raise CheckpointError(
                f"{self.folder.name}: {self._files[name]} does not hold what its "
                f"manifest says ({error}). Delete {str(self.folder)!r}; the run goes "
                "on from the checkpoint before."
            ) from error


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
    >>> files.write(100, [("kernel", lambda: kernel)], {"width": 8})
    >>> files.newest().array("kernel")
    """

    def __init__(self, folder, keep=3, shard_bytes=2**30):
        self.folder = pathlib.Path(folder)
        self._keep, self._shard_bytes = keep, shard_bytes

    def write(self, step, arrays, facts):
        """Writes a checkpoint, then removes those that are too many.

        Args:
            step: int, optimizer steps done. A checkpoint of the same step is
                replaced.
            arrays: iterable of (name, function that returns a NumPy array).
            facts: dict that JSON can hold.

        Raises:
            OSError: if it cannot be written (a full disk, say). What was there
                before is left as it was.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear_leftovers()
        temporary = self.folder / f"{_TEMPORARY}{os.getpid()}-{step}"
        try:
            temporary.mkdir()
            places = self._write_arrays(temporary, arrays)
            files = {
                name: _digest_of_file(temporary / name)
                for name in sorted(set(places.values()))
            }
            manifest = {
                "format": FORMAT,
                "step": step,
                "facts": facts,
                "arrays": places,
                "files": files,
            }
            manifest["digest"] = _digest_of_manifest(manifest)
            path = temporary / _MANIFEST
            path.write_text(json.dumps(manifest), encoding="utf-8")
            _flush(path)
            _flush(temporary)
            self._put_in_place(temporary, self.folder / f"step-{step:08d}")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for folder in self._saved()[: -self._keep]:
            self._remove(folder)

    def newest(self):
        """The newest checkpoint that is whole.

        Damaged ones are passed over with a warning that names the damage.

        Returns:
            `SavedCheckpoint`, or None if there is none at all.

        Raises:
            CheckpointError: if there are checkpoints and all are damaged.
        """
        saved, reasons = self._saved(), []
        for folder in reversed(saved):
            try:
                return SavedCheckpoint(folder, _verified_manifest(folder))
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

    def _write_arrays(self, folder, arrays):
        """Writes the arrays; returns a dict of name to file."""
        places: dict[str, str] = {}
        shard: dict = {}
        count = size = 0

        def write_shard():
            name = f"arrays-{count:05d}.safetensors"
            try:
                save_file(shard, folder / name)
            except SafetensorError as error:
                raise OSError(f"{name}: {error}") from error
            _flush(folder / name)
            places.update(dict.fromkeys(shard, name))

        for name, read in arrays:
            array = read()
            if shard and size + array.nbytes > self._shard_bytes:
                write_shard()
                shard, size, count = {}, 0, count + 1
            shard[name] = array
            size += array.nbytes
        write_shard()
        return places

    def _put_in_place(self, temporary, final):
        if final.exists():
            self._remove(final)
        os.replace(temporary, final)
        _flush(self.folder)

    def _remove(self, folder):
        # First out of sight: one removed in part would be taken for damaged.
        hidden = folder.with_name(f"{_TEMPORARY}old-{folder.name}")
        os.replace(folder, hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _clear_leftovers(self):
        """Removes what a killed process has left unfinished."""
        for path in self.folder.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _saved(self):
        return sorted(self.folder.glob("step-*"))


def _verified_manifest(folder):
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{_MANIFEST} cannot be read ({error}).") from None
    digest = manifest.pop("digest", None) if isinstance(manifest, dict) else None
    if digest is None or digest != _digest_of_manifest(manifest):
        raise CheckpointError(f"{_MANIFEST} has been changed.")
    found = manifest.get("format")
    if found == 1:
        raise FormatError(
            f"The checkpoint {folder.name} has format 1, of an earlier version of "
            f"keras_idea, and this one reads {FORMAT}. Finish the run with the version "
            "that began it, or begin anew in another folder."
        )
    if found != FORMAT:
        raise CheckpointError(
            f"its format is {found}, and this version of the package reads {FORMAT}."
        )
    _check_entries(manifest)
    for name, expected in manifest["files"].items():
        path = folder / name
        # A link could lead anywhere, to something without an end too.
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise CheckpointError(f"{name} is no plain file.")
        try:
            found = _digest_of_file(path)
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read ({error}).") from None
        if found != expected:
            raise CheckpointError(f"{name} has been changed or cut off.")
    return manifest


def _check_entries(manifest):
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
        raise CheckpointError(f"{_MANIFEST} is not one that this package has written.")


def _digest_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _digest_of_manifest(manifest):
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.blake2b(text.encode()).hexdigest()


def _flush(path):
    """Has the disk hold a file, or a folder's entries, before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
