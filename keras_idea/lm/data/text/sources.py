"""Where documents come from: files and folders of text, JSON lines and parquet."""

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from keras_idea.errors import TextError
from keras_idea.lm.data.text.readers import (
    READERS,
    SPLITS,
    ReadOptions,
    read_text,
    suffix_of,
)
from keras_idea.lm.data.text.records import POLICIES, ReadLog
from keras_idea.validation import check_choice, check_int, plural

_LOGGER = logging.getLogger("keras_idea.data")
_Paths: TypeAlias = str | os.PathLike | Iterable[str | os.PathLike]


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Reads documents from files: text, JSON lines or parquet, plain or compressed.

    Use it for text on your disk. The suffix of a file gives its format: `.txt`,
    `.text`, `.md` (text), `.jsonl`, `.ndjson` (JSON lines), `.parquet`. Text and JSON
    lines may also end in `.zst` or `.gz` (`.jsonl.zst` is the format of DCLM). Folders
    are read recursively, in sorted order of their files' paths, without hidden files.

    Args:
        paths: str, path or sequence of them. Files and folders, read in turn. Relative
            paths count from the working directory at this call. A byte order mark at
            the start of a file is left out.
        field: str. Key or column of the text in a record. Defaults to "text".
        split: str. What a document of a text file is: "file" (all of it), "paragraphs"
            (separated by blank lines) or "lines". Defaults to "file".
        pattern: str or None. Reads only files of a folder whose path matches, such as
            "*.py" or "train/*.txt"; unknown suffixes are read as text. None reads all
            known formats. A file that you name is always read. Defaults to None.
        on_bad: str. "refuse" (an error at the first bad record) or "skip" (they are
            counted and logged). Defaults to "refuse".
        max_characters: int >= 1. Longer documents are bad records. A tokenizer needs
            about 100 bytes per character. Defaults to 10,000,000.
        hash_contents: bool. Whether `key` identifies files by contents, not by place,
            size and time of change. This reads every byte. Defaults to False.

    Raises:
        TextError: If a file or folder does not exist, or there is no file to read.
        ValueError: If an argument is not allowed.

    Example:
    >>> source = TextSource("corpus", on_bad="skip")
    >>> for text in source:
    ...     print(text[:80])
    one
    two
    three
    """

    paths: _Paths
    field: str = "text"
    split: str = "file"
    pattern: str | None = None
    on_bad: str = "refuse"
    max_characters: int = 10_000_000
    hash_contents: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", _each(self.paths))
        # Relative paths count from here, also if they are read somewhere else.
        object.__setattr__(self, "_here", os.getcwd())
        check_choice("split", self.split, SPLITS)
        check_choice("on_bad", self.on_bad, POLICIES)
        check_int("max_characters", self.max_characters, minimum=1)
        self.files()

    def files(self) -> list[pathlib.Path]:
        """Returns a list of the files' `pathlib.Path`, in the order they are read."""
        here = vars(self)["_here"]
        root = pathlib.Path("" if os.getcwd() == here else here)
        paths = [root / path for path in _each(self.paths)]
        files = [file for path in paths for file in self._files_of(path)]
        if not files:
            raise TextError("No text: `paths` is empty. Give a file or a folder.")
        return files

    def _files_of(self, path: pathlib.Path) -> list[pathlib.Path]:
        if path.is_file():
            return [path]
        if not path.is_dir():
            raise TextError(
                f"No text at {str(path)!r}: there is no such file or folder (seen from "
                f"{pathlib.Path.cwd()})."
            )
        there = {f.relative_to(path): f for f in path.rglob("*") if f.is_file()}
        there = {n: f for n, f in there.items() if not is_hidden(n)}
        if self.pattern is None:
            files = {n: f for n, f in there.items() if suffix_of(f) in READERS}
        else:
            files = {n: f for n, f in there.items() if n.match(self.pattern)}
        if not files:
            wanted = self.pattern or ", ".join(READERS)
            raise TextError(
                f"No text in {str(path)!r}: of its "
                f"{plural(len(there), 'file')} none is of {wanted}. Name others with "
                "`pattern`, such as pattern='*.py'."
            )
        if len(files) < len(there):
            left = len(there) - len(files)
            _LOGGER.info("%s: %d files of other formats left out", path, left)
        return [files[name] for name in sorted(files)]

    def total_bytes(self) -> int:
        """Returns an int, the bytes of all files on the disk."""
        return sum(file.stat().st_size for file in self.files())

    def __iter__(self) -> Iterator[str]:
        return self.documents(ReadLog(self.on_bad))

    def documents(self, log: ReadLog) -> Iterator[str]:
        """Yields the documents, each once.

        Args:
            log: `ReadLog`. Counts documents, bytes and bad records.

        Yields:
            str.

        Raises:
            BadRecordError: At a bad record, if the log's `on_bad` is "refuse".
            TextError: If a file cannot be read or is cut off, whatever `on_bad` is;
                says how many of its documents were read.
        """
        options = ReadOptions(self.field, self.split, self.max_characters)
        for path in self.files():
            start = log.bytes_read
            with named(path, log):
                with path.open("rb") as file:
                    read = READERS.get(suffix_of(path), read_text)
                    for text in read(file, path, options, log):
                        log.bytes_read = start + file.tell()
                        yield text
                    log.bytes_read = start + path.stat().st_size

    def key(self) -> dict:
        """Returns what the documents depend on: files and options.

        Returns:
            dict, JSON-serializable.
        """
        options = dataclasses.asdict(self)
        del options["paths"], options["hash_contents"]
        describe = _contents if self.hash_contents else place_of
        return {**options, "files": [describe(file) for file in self.files()]}


def _each(paths: _Paths) -> tuple[pathlib.Path, ...]:
    if isinstance(paths, (str, os.PathLike)):
        paths = (paths,)
    return tuple(map(pathlib.Path, paths))


@contextlib.contextmanager
def named(path: pathlib.Path, log: ReadLog) -> Iterator[None]:
    """Errors of reading a file name it, and say how far the reading came."""
    before = log.documents
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TextError(
            f"Cannot read {str(path)!r} to its end: {reason}. "
            f"{log.documents - before:,} documents of it were read. Get the "
            "file again, or take it away."
        ) from error


def place_of(path: pathlib.Path) -> list:
    """What tells a file by its place: path, bytes and time of change."""
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def _contents(path: pathlib.Path) -> list:
    with path.open("rb") as file:
        return [suffix_of(path), hashlib.file_digest(file, "sha256").hexdigest()]


def is_hidden(relative: pathlib.PurePath) -> bool:
    """Whether a file, or a folder that it lies in, has a name with a dot before it."""
    return any(part.startswith(".") for part in relative.parts)


def held_out_files(files: dict[str, bytes], fraction: float) -> set[str]:
    """Names of the files held out; empty where whole files do not come near."""
    total = sum(map(len, files.values()))
    wanted = fraction * total
    chosen: set[str] = set()
    size = 0
    names = sorted(files, key=name_hash)
    for name in names:
        if size + len(files[name]) <= wanted:
            chosen.add(name)
            size += len(files[name])
    if size >= wanted / 2:
        return chosen
    # A few files of like size: the smallest that is no less than wanted, unless
    # it takes more than a third of the text.
    larger = [name for name in names if len(files[name]) > wanted]
    smallest = min(larger, key=lambda name: len(files[name]), default=None)
    if smallest is not None and len(files[smallest]) <= total / 3:
        return {smallest}
    return set()


def name_hash(name: str) -> bytes:
    """Bytes to order names by: the same on every machine, which `hash()` is not."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()
