"""What a checkpoint says of itself: its files, their digests, and its own."""

import hashlib
import json
import pathlib

from keras_idea.errors import CheckpointError, FormatError
from keras_idea.files import json_digest

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
    damaged, a `FormatError` that an earlier version of the package has written it.
    """
    manifest = _read(folder)
    _check_format(folder, manifest.get("format"))
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


def _check_format(folder: pathlib.Path, found: object) -> None:
    if found == 1:
        raise FormatError(
            f"The checkpoint {folder.name} has format 1, of an earlier version of "
            f"keras_idea, and this one reads {FORMAT}. Finish the run with the version "
            "that began it, or begin again in another folder."
        )
    if found != FORMAT:
        raise CheckpointError(
            f"its format is {found}, and this version of the package reads {FORMAT}."
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
