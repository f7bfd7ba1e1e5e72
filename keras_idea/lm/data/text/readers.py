"""Documents of one file: text, JSON lines or parquet, chosen by the file's name."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TypeAlias

from keras_idea.errors import StreamError
from keras_idea.lm.data.text.file_streams import (
    BYTE_ORDER_MARK,
    COMPRESSED,
    decompressed,
    numbered_lines,
)
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.validation import require

#: What a text file's document is.
SPLITS = ("file", "paragraphs", "lines")
# Bytes of a JSON line for each character of its text ("\uXXXX" twice, at most), and
# for its other fields.
_BYTES_A_CHARACTER, _OTHER_FIELDS = 12, 1 << 20
_ROWS = 1024
# The line it begins at, None: of a whole file; its bytes, None: too many.
_Block: TypeAlias = tuple[int | None, bytes | None]


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """What a document of a file is: see `TextSource`."""

    field: str
    split: str
    max_characters: int


def suffix_of(path: pathlib.Path) -> str:
    """The suffix that tells a file's format: ".jsonl" of "part.jsonl.zst"."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_text(
    file: BinaryIO, path: pathlib.Path, options: ReadOptions, log: ReadLog
) -> Iterator[str]:
    """Documents of a text file, cut as `options.split` says."""
    stream, limit = decompressed(file, path), 4 * options.max_characters
    if options.split == "file":
        whole = stream.read(limit + 1)
        if len(whole) > limit:
            log.reject("huge", path, None, f"over {limit:,} bytes")
            # To the end, so that a file that is cut off does not go unseen.
            while stream.read(1 << 20):
                pass
            return
        blocks: Iterable[_Block] = [(None, whole.removeprefix(BYTE_ORDER_MARK))]
    elif options.split == "lines":
        blocks = ((n, line) for n, line in numbered_lines(stream, limit) if line != b"")
    else:
        blocks = _paragraphs(numbered_lines(stream, limit), limit)
    for line, data in blocks:
        if data is None:
            log.reject("huge", path, line, f"over {limit:,} bytes")
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = (line or 1) + data.count(b"\n", 0, error.start)
            log.reject("invalid_utf8", path, line, _wrong_byte(error))
            continue
        # A line of white space alone is no record; a file of it is.
        if options.split == "lines" and text.isspace():
            continue
        if log.accept(text, path, line, options.max_characters):
            yield text


def read_jsonl(
    file: BinaryIO, path: pathlib.Path, options: ReadOptions, log: ReadLog
) -> Iterator[str]:
    """Documents of a file of JSON lines; `options.field` holds each one's text."""
    for number, record in json_records(file, path, options.max_characters, log):
        text = field_of(record, options.field, path, number, log)
        if text is not None and log.accept(text, path, number, options.max_characters):
            yield text


def json_records(
    file: BinaryIO, path: pathlib.Path, max_characters: int, log: ReadLog
) -> Iterator[tuple[int, Any]]:
    """Pairs of line and value of a file of JSON lines; of a bad line none."""
    limit = _BYTES_A_CHARACTER * max_characters + _OTHER_FIELDS
    for number, line in numbered_lines(decompressed(file, path), limit):
        if line is None:
            log.reject("huge", path, number, f"a line over {limit:,} bytes")
            continue
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode())
        except UnicodeDecodeError as error:
            log.reject("invalid_utf8", path, number, _wrong_byte(error))
            continue
        # Not JSON, an integer of too many digits, or brackets in brackets.
        except (ValueError, RecursionError) as error:
            log.reject("broken_json", path, number, str(error))
            continue
        yield number, record


def field_of(
    record: object, field: str, path: str | os.PathLike, line: int, log: ReadLog
) -> object:
    """A record's text, any value, or None where it was rejected."""
    if not isinstance(record, dict):
        detail = f"no object but a {type(record).__name__}"
        log.reject("missing_field", path, line, detail)
    elif field not in record:
        there = ", ".join(sorted(map(str, record))[:10])
        log.reject("missing_field", path, line, f"no {field!r} among: {there}")
    elif record[field] is None:
        log.reject("not_a_string", path, line, "null")
    else:
        return record[field]
    return None


def read_parquet(
    file: BinaryIO, path: pathlib.Path, options: ReadOptions, log: ReadLog
) -> Iterator[str]:
    """Documents of a parquet file; column `options.field` holds them."""
    parquet = require("pyarrow.parquet", f"Reading {path.name!r}")
    arrow_error = require("pyarrow", "Reading parquet").ArrowException
    try:
        table = parquet.ParquetFile(file)
        names = table.schema_arrow.names
        if options.field not in names:
            detail = f"no column {options.field!r} among: {', '.join(names[:10])}"
            rows = table.metadata.num_rows
            log.reject("missing_field", path, None, detail, count=rows)
            return
        row = 0
        for batch in table.iter_batches(_ROWS, columns=[options.field]):
            for value in batch.column(0):
                row += 1
                text = _arrow_text(value, path, row, log)
                if text is not None and log.accept(
                    text, path, row, options.max_characters
                ):
                    yield text
    except arrow_error as error:
        raise StreamError(f"it is no sound parquet file ({error})") from None


def _arrow_text(value: Any, path: pathlib.Path, row: int, log: ReadLog) -> object:
    try:
        text = value.as_py()
        text = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        log.reject("invalid_utf8", path, row, _wrong_byte(error))
        return None
    return field_of({"text": text}, "text", path, row, log)


def _paragraphs(
    lines: Iterable[tuple[int, bytes | None]], limit: int
) -> Iterator[_Block]:
    """Pairs of first line and bytes of each run of lines that are not blank."""
    first, size = None, -1  # a newline stands between two lines
    parts: list[bytes] = []
    for number, line in lines:
        if line is not None and not line.strip():
            if first is not None:
                yield first, b"\n".join(parts) if size <= limit else None
            first, parts, size = None, [], -1
            continue
        first = number if first is None else first
        size += limit + 2 if line is None else len(line) + 1
        if line is not None and size <= limit:
            parts.append(line)
    if first is not None:
        yield first, b"\n".join(parts) if size <= limit else None


def _wrong_byte(error: UnicodeDecodeError) -> str:
    return f"byte 0x{error.object[error.start]:02x}"


#: Reader of each suffix; files of others are read as text where they are asked for.
READERS: dict[str, Callable[..., Iterator[str]]] = {
    ".txt": read_text,
    ".text": read_text,
    ".md": read_text,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".parquet": read_parquet,
}
