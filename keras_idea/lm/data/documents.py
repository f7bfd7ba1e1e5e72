"""Documents, one after another: of files, or of a Hugging Face data set."""

import gzip
import hashlib
import io
import itertools
import json
import os
import pathlib
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeAlias

from keras_idea.errors import TextError
from keras_idea.validation import require

#: What a document of a text file is.
SPLITS = ("file", "paragraphs", "lines")
#: Files of a folder that are read without a pattern; also with .gz or .zst behind it.
SUFFIXES = (".txt", ".text", ".md", ".jsonl", ".ndjson", ".parquet")
STDLIB = "stdlib"
Paths: TypeAlias = str | os.PathLike | Sequence[str | os.PathLike]
# In the standard library: packages, tests, and tables that a program made.
_NOT_STDLIB = frozenset(
    "__phello__ dist-packages encodings idlelib lib2to3 pydoc_data site-packages test "
    "tests".split()
)


def find_files(paths: Paths, pattern: str | None = None) -> dict[str, pathlib.Path]:
    """Finds text files, by name, in a random order that every machine agrees on.

    So a part of the files is a sample of all of them.

    Args:
        paths: path or several. Files, and folders that are searched. "stdlib": the
            source text of Python's standard library.
        pattern: str or None. Reads the files of folders that match, such as "*.py".
            None: those with a suffix of `SUFFIXES`.

    Raises:
        TextError: If a path does not exist, or no file is found.
    """
    if paths == STDLIB:
        paths, pattern = sysconfig.get_paths()["stdlib"], "*.py"
        excluded = _NOT_STDLIB
    else:
        excluded = frozenset()
    found: dict[str, pathlib.Path] = {}
    for root in map(pathlib.Path, _each(paths)):
        if not root.exists():
            raise TextError(
                f"No text at {str(root)!r}: there is no such file or folder. Give "
                "'stdlib', or the paths of files and folders."
            )
        for file in [root] if root.is_file() else root.rglob("*"):
            name = file.relative_to(root) if file != root else pathlib.Path(file.name)
            if file == root or (_is_text(name, pattern, excluded) and file.is_file()):
                # Two roots may hold files of one name.
                same = f"{name.as_posix()}#{root}"
                found[same if name.as_posix() in found else name.as_posix()] = file
    if not found:
        raise TextError(
            f"No text in {', '.join(map(str, _each(paths)))}: no file matches "
            f"{pattern or ', '.join(SUFFIXES)}. Name others with `pattern`, such as "
            "'*.py'."
        )
    return {name: found[name] for name in sorted(found, key=name_hash)}


def _is_text(name: pathlib.Path, pattern: str | None, excluded: frozenset) -> bool:
    if is_hidden(name) or not excluded.isdisjoint(name.parts):
        return False
    return name.match(pattern) if pattern else suffix_of(name) in SUFFIXES


def first_bytes(
    files: Mapping[str, pathlib.Path], most: float
) -> dict[str, pathlib.Path]:
    """Returns the first files, of at least `most` bytes together if there are some."""
    sizes = itertools.accumulate(file.stat().st_size for file in files.values())
    before = [0, *sizes]
    return {
        n: f for (n, f), size in zip(files.items(), before, strict=False) if size < most
    }


def held_out_names(files: Mapping[str, pathlib.Path], fraction: float) -> set[str]:
    """Chooses whole files to hold out, by their place in the order.

    Returns none if they do not come near to that fraction of the bytes: then the end
    of the text has to be held out.
    """
    sizes = {name: file.stat().st_size for name, file in files.items()}
    wanted, size = fraction * sum(sizes.values()), 0
    chosen = set()
    for name in files:
        if size + sizes[name] <= wanted:
            chosen.add(name)
            size += sizes[name]
    return chosen if wanted / 2 <= size else set()


def documents(
    files: Iterable[pathlib.Path], field: str = "text", split: str = "file"
) -> Iterator[str]:
    """Yields the documents of files.

    Args:
        files: iterable of paths.
        field: str. The key or column of a record's text.
        split: str. What a document of a text file is, one of `SPLITS`.

    Raises:
        TextError: For a record or a file that cannot be read; names file and line.
    """
    for file in files:
        for place, text in _texts(file, field, split):
            try:
                if text.encode().strip():
                    yield text
            except (AttributeError, UnicodeError) as error:
                raise _unreadable(file, place, error) from error


def _texts(file: pathlib.Path, field: str, split: str) -> Iterator[tuple[int, Any]]:
    """Yields pairs of a line or row and what stands there."""
    suffix = suffix_of(file)
    if suffix in (".jsonl", ".ndjson", ".parquet"):
        for place, record in records(file, [field]):
            if not isinstance(record, dict) or field not in record:
                raise _unreadable(file, place, KeyError(field))
            yield place, record[field]
        return
    place = 0
    try:
        with _opened(file) as text:
            if split == "lines":
                for place, line in enumerate(text, 1):
                    yield place, line.rstrip("\r\n")
            elif split == "paragraphs":
                for paragraph in re.split(r"\n\s*\n", text.read()):
                    yield 0, paragraph.strip("\n")
            else:
                yield 0, text.read()
    except (OSError, EOFError, UnicodeError) as error:
        raise _unreadable(file, place, error) from error


def records(
    file: pathlib.Path, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yields pairs of line or row and record, of JSON lines or a parquet file.

    Raises:
        TextError: For a line that is no JSON, or a damaged file.
    """
    place = 0
    try:
        if suffix_of(file) == ".parquet":
            parquet = require("pyarrow.parquet", f"Reading {file.name!r}")
            table = parquet.ParquetFile(file)
            for batch in table.iter_batches(1024, columns=columns):
                for record in batch.to_pylist():
                    place += 1
                    yield place, record
            return
        with _opened(file) as lines:
            for place, line in enumerate(lines, 1):
                if line.strip():
                    yield place, json.loads(line)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise _unreadable(file, place, error) from error


def streamed(
    name: str, config: str | None, split: str, revision: str | None, field: str
) -> Iterator[str]:
    """Yields the documents of a Hugging Face data set while it is downloaded.

    Raises:
        MissingPackage: If `datasets` is not installed.
        TextError: If the data set cannot be read to its end, or a record has no text.
    """
    datasets = require("datasets", f"Streaming the data set {name!r}")
    row = 0
    try:
        for record in datasets.load_dataset(
            name, config, split=split, revision=revision, streaming=True
        ):
            row += 1
            if record[field].strip():
                yield record[field]
    # Whatever a builder or the network raises.
    except Exception as error:
        raise _unreadable(pathlib.Path(name), row, error) from error


def at_most(texts: Iterable[str], most: float, warn: bool) -> Iterator[str]:
    """Yields texts up to a number of bytes; `warn`: says if it cuts them."""
    for text in texts:
        size = len(text.encode())
        if size > most:
            if warn:
                warnings.warn("`max_megabytes` truncates the text.", stacklevel=2)
            yield text.encode()[: int(most)].decode(errors="ignore")
            return
        most -= size
        yield text


def files_key(files: Iterable[pathlib.Path]) -> list:
    """What identifies files: place, size and time of change."""
    return [(str(f.resolve()), f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def name_of(paths: Paths) -> str:
    """Names the text for a reader."""
    if paths == STDLIB:
        return f"Python {platform.python_version()} standard library"
    return ", ".join(map(str, _each(paths)))


def name_hash(name: str) -> bytes:
    """Bytes to order names by: the same on every machine, which `hash()` is not."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def is_hidden(relative: pathlib.PurePath) -> bool:
    """Whether a file, or a folder above it, has a name that begins with a dot."""
    return any(part.startswith(".") for part in relative.parts)


def suffix_of(path: pathlib.PurePath) -> str:
    """The suffix of a file's format: ".jsonl" of "part.jsonl.zst"."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return pathlib.PurePath(name).suffix


def _each(paths: Paths) -> list[str | os.PathLike]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _opened(file: pathlib.Path) -> IO[str]:
    raw: Any = file.open("rb")
    if file.suffix == ".gz":
        raw = gzip.GzipFile(fileobj=raw)
    if file.suffix == ".zst":
        # Unlike `zstandard`, it raises an error for a file that is cut off.
        arrow = require("pyarrow", f"Reading {file.name!r}")
        raw = io.BufferedReader(arrow.input_stream(raw, compression="zstd"))
    return io.TextIOWrapper(raw, "utf-8-sig")


def _unreadable(file: pathlib.Path, place: int, error: Exception) -> TextError:
    where = f"{file}, line {place}" if place else str(file)
    return TextError(
        f"Cannot read {where}: {type(error).__name__}: {error}. Correct or remove it."
    )
