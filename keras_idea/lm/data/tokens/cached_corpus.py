"""A text too large for memory: documents, and the cache of tokens made of them."""

import dataclasses
import os
from collections.abc import Iterator

import numpy as np

from keras_idea.files import check_folder
from keras_idea.lm.data.text.records import ReadLog
from keras_idea.lm.data.text.vocabulary import Vocabulary
from keras_idea.lm.data.tokens.batches import PackedWindows, TokenBatches
from keras_idea.lm.data.tokens.build import Source, build_cache
from keras_idea.lm.data.tokens.cache import TokenRange
from keras_idea.lm.data.tokens.interfaces import (
    ALL,
    START_EVERY,
    Batch,
    BatchShard,
    check_parts,
    started,
    with_starts,
)
from keras_idea.validation import check_int, require

# Batches that are read ahead of training.
_AHEAD = 16
# Tokens of which the mean length is taken, in so many places of the cache.
_SAMPLED, _PLACES = 1 << 22, 64


@dataclasses.dataclass(frozen=True)
class Documents:
    """Holds the documents of a text too large for memory; see `tokenized`.

    Args:
        source: `TextSource` or `StreamedDataset`. The documents.
        cache: str or path. The folder of token caches; see `build_cache`.
        validation: source or None. The documents held out. None holds out the last
            tokens of `source`. Defaults to None.
        validation_fraction: float in (0, 1). The share, if `validation` is None.
            Defaults to 0.05.
        sample_bytes: int. The most bytes of text in `sample`. Defaults to 16,000,000.
        name: str. A name for the documents. Defaults to "corpus".

    Example:
    >>> from keras_idea.data import TextSource, byte_vocabulary
    >>> documents = Documents(TextSource("corpus"), cache="token-cache")
    >>> corpus = documents.tokenized(byte_vocabulary(end=True))
    >>> corpus.description
    'corpus: 3 documents'
    """

    source: Source
    cache: str | os.PathLike
    validation: Source | None = None
    validation_fraction: float = 0.05
    sample_bytes: int = 16_000_000
    name: str = "corpus"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", check_folder("cache", self.cache))

    def sample(self) -> bytes:
        """Returns the first documents, as bytes, to train a tokenizer on."""
        texts, size = [], 0
        # Bad records are told of when all of it is read, for the cache.
        for text in self.source.documents(ReadLog(self.source.on_bad, log_limit=0)):
            texts.append(text.encode())
            size += len(texts[-1])
            if size >= self.sample_bytes:
                break
        return b"\n".join(texts)[: self.sample_bytes]

    def tokenized(
        self,
        vocabulary: Vocabulary,
        start_id: int | None = None,
        start_every: int = START_EVERY,
    ) -> "CachedCorpus":
        """Returns the documents as tokens, from the cache or made now.

        Args:
            vocabulary: `Vocabulary`. It needs an `end_id` and a `fingerprint`.
            start_id: int or None. As for `Corpus.tokenized`. Defaults to None.
            start_every: int >= 1. Likewise. Defaults to 4.

        Returns:
            `CachedCorpus`.

        Raises:
            MissingPackage: If grain is not installed.
            TextError, BadRecordError, CacheError, ValueError: As `build_cache`.
        """
        # Needed only later, but it must not be missed after hours of tokenizing.
        require("grain", "Training on documents")
        cache = build_cache(self.source, vocabulary, self.cache)
        if self.validation is None:
            cut = len(cache) - max(1, round(len(cache) * self.validation_fraction))
            train, held_out = cache.part(0, cut), cache.part(cut, len(cache))
        else:
            other = build_cache(self.validation, vocabulary, self.cache)
            train, held_out = cache.part(0, len(cache)), other.part(0, len(other))
        bad = sum(cache.index["bad_records"].values())
        # A KerasHub tokenizer has a text for its end; here it stands between texts.
        token_bytes = np.array(vocabulary.token_bytes)
        token_bytes[vocabulary.end_id] = 0
        return CachedCorpus(
            train,
            held_out,
            f"{self.name}: {cache.index['documents']:,} documents"
            f"{f', {bad:,} bad records left out' if bad else ''}",
            token_bytes,
            start_id,
            start_every,
        )


@dataclasses.dataclass(frozen=True)
class CachedCorpus:
    """Holds training and held-out tokens in a cache, as `Corpus` does in memory.

    Each window of the training tokens is seen once per epoch, in another order each
    time. The windows of a step depend on its number and the seed alone.

    Args:
        train: `TokenRange`. Tokens to train on.
        validation: `TokenRange`. Tokens held out.
        description: str. Where the text comes from.
        token_bytes: float array `(vocabulary,)`. The bytes of text per id: none for the
            token that ends a document.
        start_id: int or None. As for `Corpus`. Defaults to None.
        start_every: int >= 1. As for `Corpus`. Defaults to 4.
    """

    train: TokenRange
    validation: TokenRange
    description: str
    token_bytes: np.ndarray
    start_id: int | None = None
    start_every: int = START_EVERY

    def __post_init__(self) -> None:
        check_int("start_every", self.start_every, minimum=1)

    @property
    def counted(self) -> float:
        """float, the share of the training tokens that the loss counts: all."""
        return 1.0

    def bytes_per_token(self, ids: np.ndarray) -> float:
        """Returns the mean bytes per token, as `Corpus.bytes_per_token`."""
        return float(self.token_bytes[ids].mean())

    def train_bytes_per_token(self) -> float:
        """Returns the mean bytes per token, from a sample of the training tokens."""
        size = len(self.train)
        step = -(-size // _PLACES)
        parts = [
            self.train[start : min(start + step, start + _SAMPLED // _PLACES)]
            for start in range(0, size, step)
        ]
        return self.bytes_per_token(np.concatenate(parts))

    def fingerprint(self) -> str:
        """Returns a str, a digest that identifies the tokens and their shards."""
        return f"{self.train.fingerprint}-{self.validation.fingerprint}"

    def check_length(self, length: int) -> None:
        """Raises an error if sequences are too long, as `Corpus.check_length`."""
        sizes = len(self.train), len(self.validation)
        check_parts(*sizes, self.description, length, "token")

    def batch(self, step: int, *, seed: int, batch_size: int, length: int) -> Batch:
        """Returns the batch of a step, of windows in an order given by the seed."""
        batches = TokenBatches(self.train, length, batch_size, seed)
        return self._with_starts(step, batches.dataset(step)[0])

    def batches(
        self,
        *,
        seed: int,
        batch_size: int,
        length: int,
        start_step: int = 0,
        share: BatchShard = ALL,
    ) -> Iterator[Batch]:
        """Yields batches as `Corpus.batches`; grain reads some ahead on threads."""
        # A part of a batch is the batch of a run of smaller ones.
        size = batch_size // share.parts
        batches = TokenBatches(self.train, length, size, seed, share.index, share.count)
        grain = require("grain", "Reading batches of tokens")
        ahead = grain.ReadOptions(prefetch_buffer_size=_AHEAD)
        first = start_step * share.parts
        dataset = batches.dataset(first).to_iter_dataset(ahead)
        for place, batch in enumerate(dataset, start=first):
            step, part = divmod(place, share.parts)
            rows = share.rows(part, batch_size)
            yield self._with_starts(step, batch, rows.start)

    def validation_windows(self, *, length: int, limit: int | None = None) -> Batch:
        """Returns held-out windows, as `Corpus.validation_windows`."""
        found = PackedWindows(self.validation, length).arrays(limit)
        return started(found, self.start_id, self.start_every)

    def _with_starts(self, step: int, batch: Batch, first_row: int = 0) -> Batch:
        x, y = batch
        return with_starts(x, step, self.start_id, first_row, self.start_every), y
