"""Files as streams of bytes and of lines, compressed or not; damage is an error."""

import gzip
import io
import pathlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

from keras_idea.errors import StreamError
from keras_idea.validation import require

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Suffixes of compressed files.
COMPRESSED = (".zst", ".gz")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 17


def decompressed(file: BinaryIO, path: pathlib.Path) -> BinaryIO:
    """A buffered stream of what a file holds, whose suffix tells the compression.

    Unlike `zstandard`'s own reader, which takes the end of a file for the end of its
    text, it raises `StreamError` where a frame is cut off.
    """
    if path.suffix == ".zst":
        zstandard = require("zstandard", f"Reading {path.name!r}")
        return io.BufferedReader(_ZstdFrames(file, zstandard), buffer_size=1 << 20)
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.GzipFile(fileobj=file), buffer_size=1 << 20)
    return file


class _ZstdFrames(io.RawIOBase):
    """The frames of a .zst file, one after the other."""

    def __init__(self, file: BinaryIO, zstandard: ModuleType) -> None:
        self._file, self._error = file, zstandard.ZstdError
        # The largest window that `zstd --long` writes: 2 GiB.
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
        self._frame: Any = None
        self._input, self._output, self._began = b"", memoryview(b""), False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._output:
            chunk = self._input or self._file.read(_CHUNK)
            if not chunk:
                if self._frame or not self._began:
                    raise StreamError(
                        "it ends in the middle of a Zstandard frame: it is truncated"
                    )
                return 0
            self._decompress(chunk)
        view = memoryview(buffer)
        size = min(len(view), len(self._output))
        view[:size], self._output = self._output[:size], self._output[size:]
        return size

    def _decompress(self, chunk: bytes) -> None:
        self._began, self._input = True, b""
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            self._output = memoryview(self._frame.decompress(chunk))
        except self._error as error:
            raise StreamError(f"it is no sound Zstandard data ({error})") from None
        if self._frame.eof:
            self._input, self._frame = self._frame.unused_data, None


def numbered_lines(
    stream: BinaryIO, max_bytes: int
) -> Iterator[tuple[int, bytes | None]]:
    """Lines of a stream, however long they are.

    Yields:
        Pairs of the line's number, from 1, and its bytes without the line's end; None
        in place of a line longer than `max_bytes`, which is not held in memory.
    """
    number = 0
    while line := stream.readline(max_bytes + 1):
        number += 1
        if line.endswith(b"\n") or len(line) <= max_bytes:
            # A byte order mark is no text.
            line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            yield number, line.rstrip(b"\r\n")
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
        yield number, None
