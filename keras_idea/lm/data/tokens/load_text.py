"""Text as bytes: what is read, what is held out.

The vocabulary is the 256 bytes, so that there is no tokenizer to fit; a model that
has one gets its ids from `Corpus.tokenized`.
"""

import codecs
import os
import pathlib
import platform
import sysconfig
from collections.abc import Iterable

import numpy as np

from keras_idea.errors import TextError
from keras_idea.lm.data.text.file_streams import BYTE_ORDER_MARK
from keras_idea.lm.data.text.sources import held_out_files, is_hidden, name_hash
from keras_idea.lm.data.tokens.corpus import Corpus
from keras_idea.validation import plural

# Not part of the standard library's own source (packages, tests), or tables and
# pages made by a program, which would be learnt by heart instead of as text.
_STDLIB_EXCLUDED = {
    "__phello__",
    "dist-packages",
    "encodings",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
}


def load_text(
    source: str | os.PathLike = "stdlib",
    validation_fraction: float = 0.05,
    max_bytes: int = 16_000_000,
) -> Corpus:
    """Reads text into memory and holds some of it out for validation.

    Of several files, whole files are held out, by a hash of their relative paths: the
    same on every machine, but files added later may change the choice. If that cannot
    come near `validation_fraction` (one file, or one that outweighs the others), the
    end of the text is held out.

    Args:
        source: str or path. "stdlib" (the source text of Python's standard library), a
            text file, or a folder, read recursively. Hidden and binary files (NUL byte,
            or not UTF-8) are left out of it. Defaults to "stdlib".
        validation_fraction: float in (0, 1). Share held out. Defaults to 0.05.
        max_bytes: int. The most bytes to read, from files drawn by that hash. Defaults
            to 16,000,000.

    Returns:
        `Corpus` of bytes. Its `description` says if the text is longer than
        `max_bytes`.

    Raises:
        TextError: If the path does not exist or holds no text.

    Example:
    >>> corpus = load_text("text.txt", validation_fraction=0.1)
    >>> x, y = corpus.batch(step=0, seed=0, batch_size=32, length=64)
    >>> x.shape
    (32, 64)
    """
    files, name, note = _read_source(source, max_bytes)
    held_out = held_out_files(files, validation_fraction)
    if not held_out:
        count = "" if name in files else f": {plural(len(files), 'file')}"
        description = f"{name}{count}{note}"
        return _cut_end(b"".join(files.values()), validation_fraction, description)
    return _split(files, held_out, name, note)


def whole_text(source: str | os.PathLike, max_bytes: int) -> bytes:
    """The text of a source as `load_text` reads it, files in the order of paths."""
    return b"".join(_read_source(source, max_bytes)[0].values())


def _read_source(
    source: str | os.PathLike, max_bytes: int
) -> tuple[dict[str, bytes], str, str]:
    """The bytes of each file, a name for all, and a note on what was not read."""
    if source == "stdlib":
        name = f"Python {platform.python_version()} standard library"
        root = pathlib.Path(sysconfig.get_paths()["stdlib"])
        paths = [p for p in root.rglob("*.py") if not _excluded(p.relative_to(root))]
    else:
        name, root = str(source), pathlib.Path(source)
        if not root.exists():
            raise TextError(
                f"No text at {name!r}: there is no such file or folder (seen from "
                f"{pathlib.Path.cwd()}). Give 'stdlib', a text file or a folder."
            )
        if root.is_file():
            text = _read_file(root, max_bytes)
            return {name: text}, name, _cut(root.stat().st_size > max_bytes, max_bytes)
        paths = [p for p in root.rglob("*") if not is_hidden(p.relative_to(root))]
    files, skipped, cut = _read_files(root, paths, max_bytes)
    note = f", {plural(skipped, 'binary file')} skipped" if skipped else ""
    note += _cut(cut, max_bytes)
    if not files:
        raise TextError(
            f"No text in {name!r}: it holds no readable UTF-8 text file{note}. Give "
            "'stdlib', a text file or a folder of text files."
        )
    return files, name, note


def _cut(cut: bool, max_bytes: int) -> str:
    return f", only {max_bytes:,} bytes of it read" if cut else ""


def _split(files: dict[str, bytes], held_out: set[str], name: str, note: str) -> Corpus:
    names = f" ({', '.join(sorted(held_out))})" if len(held_out) <= 2 else ""
    validation = [text for path, text in files.items() if path in held_out]
    train = [text for path, text in files.items() if path not in held_out]
    return Corpus(
        _as_array(b"".join(train)),
        _as_array(b"".join(validation)),
        f"{name}: {plural(len(train), 'file')} to train on, {len(validation)} held out"
        f"{names}{note}",
    )


def _read_file(path: pathlib.Path, max_bytes: int) -> bytes:
    text = _read(path, max_bytes)
    if text is None:
        raise TextError(f"{str(path)!r} is not UTF-8 text. Give a text file.")
    if b"\0" in text:
        raise TextError(
            f"{str(path)!r} holds a NUL (its byte {text.index(0)}), which no text "
            "does. Remove it, or give a text file."
        )
    if not text:
        raise TextError(f"{str(path)!r} is empty. Give a file with text in it.")
    return text


def _cut_end(text: bytes, validation_fraction: float, description: str) -> Corpus:
    cut = len(text) - max(1, round(len(text) * validation_fraction))
    array = _as_array(text)
    return Corpus(array[:cut], array[cut:], f"{description}, the end held out")


def _read_files(
    root: pathlib.Path, paths: Iterable[pathlib.Path], max_bytes: int
) -> tuple[dict[str, bytes], int, bool]:
    """Dict of path to bytes, sorted; the number skipped; whether text was left."""
    names = {p.relative_to(root).as_posix(): p for p in paths if p.is_file()}
    files: dict[str, bytes] = {}
    skipped, left, cut = 0, max_bytes, False
    for name in sorted(names, key=name_hash):
        if left <= 0:
            cut = True
            break
        text = _read(names[name], left)
        if text is None or b"\0" in text:
            skipped += 1
        elif text:
            files[name] = text
            cut |= names[name].stat().st_size > left
            left -= len(text)
    return dict(sorted(files.items())), skipped, cut


def _read(path: pathlib.Path, max_bytes: int) -> bytes | None:
    """The first `max_bytes` bytes of a file, or None if they are no UTF-8.

    Without the byte order mark that some editors write first.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes)
    except OSError as error:
        raise TextError(f"Cannot read {str(path)!r}: {error.strerror}.") from None
    try:
        # `final=False`: the cut may fall inside a character.
        codecs.getincrementaldecoder("utf-8")().decode(data, final=False)
    except UnicodeDecodeError:
        return None
    return data.removeprefix(BYTE_ORDER_MARK)  # which is no text


def _excluded(relative: pathlib.PurePath) -> bool:
    return not _STDLIB_EXCLUDED.isdisjoint(relative.parts)


def _as_array(text: bytes) -> np.ndarray:
    return np.frombuffer(text, dtype="uint8")
