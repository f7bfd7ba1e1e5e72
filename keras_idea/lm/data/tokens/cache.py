"""A cache of token ids: memory-mapped shards and an index that vouches for them."""

import bisect
import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
from concurrent import futures
from typing import Literal, TypeAlias, get_args

import numpy as np

from keras_idea.errors import CacheError
from keras_idea.files import json_digest, write_atomically
from keras_idea.validation import check_choice, check_int

#: Changes with the files' layout: caches of another one are made anew.
FORMAT = 1
INDEX = "index.json"
#: How thoroughly a cache is checked when it is opened.
Verify: TypeAlias = Literal["contents", "sizes"]
VERIFY: tuple[str, ...] = get_args(Verify)


class TokenCache:
    """Reads the tokens of a corpus, joined to one stream, memory-mapped.

    `build_cache` makes it: a folder of `shard-00000.bin`, ... (unsigned integers,
    little endian, 2 bytes up to 65,536 ids, otherwise 4) and `index.json`.

    Args:
        path: str or path. The folder.
        verify: str. "contents" reads each shard and compares its SHA-256 (about 1.5
            GB/s per core). "sizes" compares sizes only. The index is always checked by
            its own sum. Defaults to "contents".

    Attributes:
        path: pathlib.Path. The folder, absolute.
        index: dict. Contents of `index.json`: "documents", "tokens", "bad_records",
            "vocabulary_size", "end_id", "key" and "shards".
        fingerprint: str. Equal for caches with equal shards.

    Raises:
        CacheError: If there is no cache, or it is damaged; names the file.

    Example:
    >>> cache = TokenCache(cache.path)
    >>> len(cache), cache[:5].tolist()
    (2241, [116, 104, 101, 32, 113])
    """

    def __init__(self, path: str | os.PathLike, verify: Verify = "contents") -> None:
        self.path = pathlib.Path(os.path.abspath(path))
        check_choice("verify", verify, VERIFY)
        self.index = _read_index(self.path)
        self.dtype = np.dtype(self.index["dtype"])
        self._shards = self.index["shards"]
        with futures.ThreadPoolExecutor() as pool:
            check = self._check_contents if verify == "contents" else self._check_size
            list(pool.map(check, self._shards))
        self._arrays = [
            np.memmap(self.path / shard["name"], self.dtype, "r")
            for shard in self._shards
        ]
        sizes = [shard["tokens"] for shard in self._shards]
        self._ends = list(itertools.accumulate(sizes))

    @property
    def fingerprint(self) -> str:
        """str, equal for caches with equal shards of the same vocabulary."""
        parts = [self.index[name] for name in ("dtype", "vocabulary_size", "end_id")]
        parts += [shard["sha256"] for shard in self._shards]
        return json_digest(parts)[:32]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, place: slice) -> np.ndarray:
        """Array of the tokens of a slice of step 1, from one or several shards."""
        if not isinstance(place, slice) or place.step not in (None, 1):
            raise TypeError(
                f"`TokenCache` takes slices of step 1. Received: {place!r}."
            )
        start, stop, _ = place.indices(len(self))
        first = bisect.bisect_right(self._ends, start)
        parts = []
        while start < stop:
            offset = start - (self._ends[first] - len(self._arrays[first]))
            part = self._arrays[first][offset : offset + stop - start]
            parts.append(np.asarray(part))
            start, first = start + len(part), first + 1
        return np.concatenate(parts) if parts else np.zeros(0, self.dtype)

    def part(self, start: int, stop: int) -> "TokenRange":
        """Returns a `TokenRange` of the tokens from `start` to `stop`, exclusive."""
        return TokenRange(self, start, stop)

    def _check_size(self, shard: dict) -> pathlib.Path:
        path = self.path / shard["name"]
        wanted = shard["tokens"] * self.dtype.itemsize
        if not path.is_file():
            raise CacheError(_damaged(path, "is missing"))
        if path.stat().st_size != wanted:
            there = f"{path.stat().st_size:,} bytes instead of {wanted:,}"
            raise CacheError(_damaged(path, f"has {there}"))
        return path

    def _check_contents(self, shard: dict) -> pathlib.Path:
        path = self._check_size(shard)
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != shard["sha256"]:
                raise CacheError(_damaged(path, "has other contents"))
        return path


@dataclasses.dataclass(frozen=True)
class TokenRange:
    """Refers to consecutive tokens of a cache, without a copy.

    Args:
        cache: `TokenCache`. The cache.
        start: int. The first token.
        stop: int. The end, exclusive.

    Example:
    >>> held_out = cache.part(len(cache) - 100, len(cache))
    >>> len(held_out)
    100
    """

    cache: TokenCache
    start: int
    stop: int

    def __post_init__(self) -> None:
        check_int("start", self.start, minimum=0, maximum=len(self.cache))
        check_int("stop", self.stop, minimum=self.start, maximum=len(self.cache))

    @property
    def fingerprint(self) -> str:
        """str, equal for the same range of caches with equal fingerprints."""
        return json_digest([self.cache.fingerprint, self.start, self.stop])[:32]

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, place: slice) -> np.ndarray:
        """Array of the tokens of a slice of step 1."""
        if not isinstance(place, slice):
            raise TypeError(f"`TokenRange` takes slices. Received: {place!r}.")
        start, stop, step = place.indices(len(self))
        return self.cache[self.start + start : self.start + stop : step]


def write_index(path: pathlib.Path, index: dict) -> None:
    """Writes the index of a cache, and a sum by which it can be checked."""
    signed = {**index, "sum": json_digest(index)}
    write_atomically(path, json.dumps(signed, indent=1) + "\n")


def _read_index(folder: pathlib.Path) -> dict:
    path = folder / INDEX
    if not path.is_file():
        raise CacheError(
            f"No cache of tokens at {str(folder)!r}: it has no {INDEX}. Make one with "
            "`build_cache`."
        )
    try:
        index = json.loads(path.read_bytes())
        sound = index.pop("sum") == json_digest(index)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise CacheError(_damaged(path, "does not agree with its own sum"))
    if index["format"] != FORMAT:
        raise CacheError(_damaged(path, f"is of format {index['format']}"))
    return index


def _damaged(path: pathlib.Path, how: str) -> str:
    return (
        f"The cache of tokens {str(path.parent)!r} is damaged: {path.name} {how}. "
        "Delete the folder; `build_cache` makes it again."
    )
