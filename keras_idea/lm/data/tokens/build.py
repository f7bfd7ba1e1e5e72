"""Makes the cache of a corpus: reads, tokenizes on several threads, writes."""

import collections
import contextlib
import logging
import os
import pathlib
import sys
from collections.abc import Generator, Iterable, Iterator
from concurrent import futures

import numpy as np

from keras_idea.errors import ArgumentError, TextError
from keras_idea.files import check_folder
from keras_idea.lm.data.text.hf_dataset import StreamedDataset
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.lm.data.text.sources import TextSource
from keras_idea.lm.data.text.vocabulary import Vocabulary, fingerprint_of
from keras_idea.lm.data.tokens.batches import join_documents
from keras_idea.lm.data.tokens.cache import (
    FORMAT,
    INDEX,
    VERIFY,
    TokenCache,
    Verify,
    write_index,
)
from keras_idea.lm.data.tokens.shards import ShardWriter, new_folder
from keras_idea.validation import check_choice, check_int, missing, require

Source = TextSource | StreamedDataset

# Characters a thread tokenizes at a time.
_CHUNK = 1 << 18
_LOGGER = logging.getLogger("keras_idea.data")


def build_cache(
    source: Source,
    vocabulary: Vocabulary,
    folder: str | os.PathLike,
    workers: int | None = None,
    shard_tokens: int = 1 << 26,
    verify: Verify = "contents",
    progress: bool | None = None,
) -> TokenCache:
    """Opens the token cache of a corpus; the first time, makes it.

    The source (files with place, size and time of change, or contents; options), the
    tokenizer's fingerprint and the end token give the cache its name. If one of them
    changes, another cache is made. A cache appears whole or not at all, even if the
    process is killed or several make it at once. Documents are tokenized on threads
    (the libraries release Python's lock) and keep their order: the tokens do not depend
    on `workers`.

    Args:
        source: `TextSource` or `StreamedDataset`. The documents.
        vocabulary: `Vocabulary`. It needs an `end_id` and a `fingerprint`.
        folder: str or path. The folder of the caches. It is made if needed.
        workers: int or None. Threads. Defaults to None: the CPU cores of this process.
        shard_tokens: int >= 1. Tokens per file. Defaults to 67,108,864 (128 MiB of
            2-byte ids).
        verify: str. "contents" or "sizes": how an existing cache is checked; see
            `TokenCache`. Defaults to "contents".
        progress: bool or None. Whether to show a bar. Defaults to None: if standard
            error is a terminal and `rich` is installed.

    Returns:
        `TokenCache`.

    Raises:
        BadRecordError: At a bad record, if the source's `on_bad` is "refuse".
        TextError: If a file cannot be read to its end or changes meanwhile, if there is
            no document, or if an id is not in the vocabulary.
        CacheError: If the cache exists and is damaged.
        MissingPackage: If a bar is requested and `rich` is not installed.
        ValueError: If an argument is not allowed, or the vocabulary has no `end_id` or
            no `fingerprint`.

    Example:
    >>> from keras_idea.data import byte_vocabulary
    >>> source = TextSource("corpus", on_bad="skip")  # "one", "two", "three"
    >>> cache = build_cache(source, byte_vocabulary(end=True), "cache")
    >>> len(cache), cache.index["documents"], cache.index["bad_records"]
    (14, 3, {})
    """
    workers = _cores() if workers is None else check_int("workers", workers, minimum=1)
    check_int("shard_tokens", shard_tokens, minimum=1)
    check_choice("verify", verify, VERIFY)
    check_folder("folder", folder)
    key = {
        "format": FORMAT,
        "source": source.key(),
        "tokenizer": list(_identity(vocabulary)),
    }
    path = pathlib.Path(folder) / f"tokens-{fingerprint_of(key)[:16]}"
    if path.is_dir():
        return TokenCache(path, verify)
    with new_folder(path) as temporary:
        dtype = np.dtype("<u2" if vocabulary.vocabulary_size <= 1 << 16 else "<u4")
        writer = ShardWriter(temporary, dtype, shard_tokens)
        log = _write(source, vocabulary, writer, workers, progress)
        _check_whole(source, key, log)
        write_index(temporary / INDEX, _index(vocabulary, key, log, writer))
    _LOGGER.info("%s; %s tokens", log.summary(), f"{writer.tokens:,}")
    return TokenCache(path, "sizes")


def _identity(vocabulary: Vocabulary) -> tuple[str, int]:
    """A vocabulary's fingerprint and the token that ends a document."""
    if vocabulary.end_id is None or vocabulary.fingerprint is None:
        raise ArgumentError(
            "`vocabulary` needs an `end_id`, which stands between documents, and a "
            "`fingerprint`. Received: "
            f"end_id={vocabulary.end_id!r}, fingerprint={vocabulary.fingerprint!r}. "
            "`load_vocabulary` gives one that has both."
        )
    return vocabulary.fingerprint, vocabulary.end_id


def _index(
    vocabulary: Vocabulary, key: dict, log: ReadLog, writer: ShardWriter
) -> dict:
    return {
        "format": FORMAT,
        "dtype": writer.dtype.str,
        "vocabulary_size": vocabulary.vocabulary_size,
        "end_id": vocabulary.end_id,
        "documents": log.documents,
        "tokens": writer.tokens,
        "bad_records": dict(sorted(log.bad.items())),
        "key": key,
        "shards": writer.shards,
    }


def _write(
    source: Source,
    vocabulary: Vocabulary,
    writer: ShardWriter,
    workers: int,
    progress: bool | None,
) -> ReadLog:
    """Writes the shards; whatever happens, threads are ended and files closed."""
    log = ReadLog(source.on_bad)
    encoded = _encoded(source, vocabulary, log, writer.dtype, workers)
    with contextlib.closing(encoded):
        try:
            for tokens in _shown(encoded, source, log, writer, progress):
                writer.write(tokens)
            writer.close()
        finally:
            writer.abandon()
    return log


def _check_whole(source: Source, key: dict, log: ReadLog) -> None:
    if not log.documents:
        raise TextError(f"There is no document to train on: {log.summary()}.")
    if source.key() != key["source"]:
        raise TextError(
            "The text changed while it was read. Start again when it does no more."
        )


def _encoded(
    source: Source, vocabulary: Vocabulary, log: ReadLog, dtype: np.dtype, workers: int
) -> Generator[np.ndarray, None, None]:
    """Token arrays of runs of documents, in order, made on several threads."""
    _, end_id = _identity(vocabulary)

    def encode(texts: list[str]) -> np.ndarray:
        tokens = join_documents(vocabulary.encode_all(texts), end_id)
        # A number that does not fit would become another one.
        least, most = tokens.min(), tokens.max()
        if least < 0 or most >= vocabulary.vocabulary_size:
            raise TextError(
                f"The tokenizer gave ids from {least} to {most}; its vocabulary has 0 "
                f"to {vocabulary.vocabulary_size - 1}. Give a tokenizer that knows "
                "every text, with byte-level or byte-fallback tokens."
            )
        return tokens.astype(dtype)

    waiting: collections.deque = collections.deque()
    with futures.ThreadPoolExecutor(workers) as pool:
        try:
            for texts in _chunks(source.documents(log)):
                waiting.append(pool.submit(encode, texts))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _chunks(documents: Iterable[str]) -> Iterator[list[str]]:
    texts: list[str] = []
    size = 0
    for text in documents:
        texts.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _shown(
    chunks: Iterable[np.ndarray],
    source: Source,
    log: ReadLog,
    writer: ShardWriter,
    progress: bool | None,
) -> Iterator[np.ndarray]:
    """The same chunks, while a bar shows how far the reading is."""
    if progress is None:
        progress = sys.stderr.isatty() and not missing(["rich"])
    if not progress:
        yield from chunks
        return
    bar = require("rich.progress", "A progress bar", "cli")
    console = require("rich.console", "A progress bar", "cli").Console(stderr=True)

    columns = [
        bar.TextColumn("tokenizing"),
        bar.BarColumn(),
        bar.TextColumn("{task.fields[done]}"),
        bar.TimeElapsedColumn(),
        bar.TimeRemainingColumn(),
    ]
    with bar.Progress(*columns, console=console) as shown:
        task = shown.add_task("", total=source.total_bytes(), done="")
        for tokens in chunks:
            yield tokens
            done = f"{writer.tokens / 1e6:,.1f} M tokens, {log.summary()}"
            shown.update(task, completed=log.bytes_read, done=done)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
