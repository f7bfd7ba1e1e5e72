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

from keras_idea._validation import require
from keras_idea.errors import KerasIdeaError, TextError

#: What a document of a text file is.
SPLITS = ("file", "paragraphs", "lines")
#: Files of a folder that are read without a pattern; also with .gz or .zst behind it.
SUFFIXES = (".txt", ".text", ".md", ".jsonl", ".ndjson", ".parquet")
STDLIB = "stdlib"
Paths: TypeAlias = str | os.PathLike | Sequence[str | os.PathLike]
#: Files by their names, which are the same on every machine.
Files: TypeAlias = Mapping[str, pathlib.Path]
# In the standard library: packages, tests, and tables that a program made.
_NOT_STDLIB = frozenset(
    "__phello__ dist-packages encodings idlelib lib2to3 pydoc_data site-packages test "
    "tests".split()
)


def find_files(paths: Paths, pattern: str | None = None) -> dict[str, pathlib.Path]:
    """Finds text files, in a random order that every machine agrees on.

    So a part of the files is a sample of all. See `open_text` for the arguments.

    Raises:
        TextError: If a path does not exist, or no file is found.
    """
    excluded: frozenset[str] = frozenset()
    if paths == STDLIB:
        paths, pattern, excluded = sysconfig.get_paths()["stdlib"], "*.py", _NOT_STDLIB
    found: dict[str, pathlib.Path] = {}
    for root in map(pathlib.Path, _each(paths)):
        if not root.exists():
            raise TextError(
                f"No text at {str(root)!r}: there is no such file or folder. Give "
                "'stdlib', or the paths of files and folders."
            )
        if root.is_file():
            found[root.as_posix() if root.name in found else root.name] = root
        for file in root.rglob("*"):
            name = file.relative_to(root)
            hidden = any(
                part.startswith(".") or part in excluded for part in name.parts
            )
            wanted = name.match(pattern) if pattern else suffix_of(name) in SUFFIXES
            if wanted and not hidden and file.is_file():
                known = name.as_posix() in found
                found[(file if known else name).as_posix()] = file
    if not found:
        raise TextError(
            f"No text in {name_of(paths)}: no file matches "
            f"{pattern or ', '.join(SUFFIXES)}. Name others with `pattern`, such as "
            "'*.py'."
        )
    return {name: found[name] for name in sorted(found, key=name_hash)}


def first_bytes(files: Files, most: float) -> Files:
    """Returns the first files, up to the one that reaches a number of bytes."""
    before = itertools.accumulate((size_of([f]) for f in files.values()), initial=0)
    zipped = zip(files.items(), before, strict=False)
    return {name: file for (name, file), size in zipped if size < most}


def held_out_files(files: Files, fraction: float) -> Files:
    """Chooses whole files to hold out, by their place in the order.

    Chooses none if they do not come near to that fraction of the bytes: then the end of
    the text has to be held out.
    """
    wanted, size = fraction * size_of(files.values()), 0
    chosen = {}
    for name, file in files.items():
        if size + size_of([file]) <= wanted:
            chosen[name] = file
            size += size_of([file])
    return chosen if 0 < wanted / 2 <= size else {}


def documents(
    files: Iterable[pathlib.Path], field: str = "text", split: str = "file"
) -> Iterator[str]:
    """Yields the documents of files; see `open_text` for the arguments.

    Raises:
        TextError: For a record or a file that cannot be read; names file and line.
    """
    for file in files:
        yield from _texts(records(file, field, split), field, file)


def streamed(dataset: str, field: str) -> Iterator[str]:
    """Yields the documents of a Hugging Face data set while it is downloaded.

    Raises:
        MissingPackage: If `datasets` is not installed.
        TextError: If the data set cannot be read to its end, or a record has no text.
    """
    datasets = require("datasets", f"Streaming the data set {dataset!r}")
    name, _, revision = dataset.partition("@")
    name, _, config = name.partition(":")
    options = {"revision": revision or None, "split": "train", "streaming": True}

    def rows() -> Iterator[tuple[int, Any]]:
        found = datasets.load_dataset(name, config or None, **options)
        yield from enumerate(found, 1)

    yield from _texts(rows(), field, pathlib.Path(name))


def _texts(
    found: Iterable[tuple[int, Any]], field: str, source: pathlib.Path
) -> Iterator[str]:
    """Yields the texts of records that are not blank."""
    place = 0
    try:
        for row, record in found:
            place = row
            text = record[field]
            if text.encode().strip():  # half of a surrogate pair is no text
                yield text
    except KerasIdeaError:
        raise
    # Whatever a record, a builder of a data set or the network raises.
    except Exception as error:
        raise _unreadable(source, place, error) from error


def records(
    file: pathlib.Path, field: str | None = None, split: str = "file"
) -> Iterator[tuple[int, Any]]:
    """Yields pairs of line or row (0: the whole file) and record.

    The records of a text file are its documents, as `field`. None: JSON lines or
    parquet only, with all fields.

    Raises:
        TextError: For a line that is no JSON, or a damaged file.
    """
    place = 0
    try:
        if suffix_of(file) == ".parquet":
            parquet = require("pyarrow.parquet", f"Reading {file.name!r}")
            columns = None if field is None else [field]
            for batch in parquet.ParquetFile(file).iter_batches(1024, columns=columns):
                for record in batch.to_pylist():
                    place += 1
                    yield place, record
            return
        with file.open("rb") as raw, _opened(raw, file) as text:
            if field is None or suffix_of(file) in (".jsonl", ".ndjson"):
                for place, line in enumerate(text, 1):
                    if line.strip():
                        yield place, json.loads(line)
            elif split == "lines":
                yield from (
                    (n, {field: x.rstrip("\r\n")}) for n, x in enumerate(text, 1)
                )
            elif split == "paragraphs":
                for paragraph in re.split(r"\n\s*\n", text.read()):
                    yield 0, {field: paragraph.strip("\n")}
            else:
                yield 0, {field: text.read()}
    except (OSError, EOFError, ValueError, RecursionError) as error:
        raise _unreadable(file, place, error) from error


def at_most(texts: Iterable[str], most: float, warn: bool) -> Iterator[str]:
    """Yields texts up to a number of bytes; `warn`: says if it cuts them."""
    for text in texts:
        size = len(text.encode())
        if size > most:
            if warn:
                warnings.warn("`max_megabytes` cuts the text: raise it.", stacklevel=2)
            yield text.encode()[: int(most)].decode(errors="ignore")
            return
        most -= size
        yield text


def size_of(files: Iterable[pathlib.Path]) -> int:
    """Returns the bytes of files on the disk."""
    return sum(file.stat().st_size for file in files)


def name_of(paths: Paths) -> str:
    """Names a text for a reader."""
    python = f"Python {platform.python_version()} standard library"
    return python if paths == STDLIB else ", ".join(map(str, _each(paths)))


def name_hash(name: str) -> bytes:
    """Returns bytes to order names by, the same on every machine."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


def suffix_of(path: pathlib.PurePath) -> str:
    """Returns the suffix of a file's format: ".jsonl" of "part.jsonl.zst"."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    return pathlib.PurePath(name).suffix


def _each(paths: Paths) -> list[str | os.PathLike]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _opened(raw: Any, file: pathlib.Path) -> IO[str]:
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
