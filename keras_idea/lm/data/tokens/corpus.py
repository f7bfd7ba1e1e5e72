"""A text in memory as token ids, and the windows of it that a model reads."""

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np

from keras_idea.lm.data.text.vocabulary import Vocabulary, byte_vocabulary
from keras_idea.lm.data.tokens.interfaces import (
    ALL,
    START_EVERY,
    Batch,
    BatchShard,
    check_parts,
    started,
    with_starts,
)
from keras_idea.validation import check_int


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Holds text to train on and text held out, as token ids in memory.

    `load_text` makes one of bytes; `tokenized` makes another from it. For text too
    large for memory use `Documents`.

    Args:
        train: int array `(tokens,)`. Tokens to train on.
        validation: int array `(tokens,)`. Tokens held out.
        description: str. Where the text comes from.
        token_bytes: float array `(vocabulary,)`. The bytes per id. Defaults to 1 each.
        start_id: int or None. First token of some training windows. Defaults to None.
        start_every: int >= 1. One in so many windows begins with it. With 1 each does,
            of the held-out text too. Defaults to 4.

    Example:
    >>> from keras_idea.data import load_text
    >>> corpus = load_text("text.txt")
    >>> _ = model.fit(corpus.batches(seed=0, batch_size=4, length=16),
    ...               steps_per_epoch=2, shuffle=False,
    ...               validation_data=corpus.validation_windows(length=16, limit=4),
    ...               verbose=0)
    """

    train: np.ndarray
    validation: np.ndarray
    description: str
    token_bytes: np.ndarray = dataclasses.field(default_factory=lambda: np.ones(256))
    start_id: int | None = None
    start_every: int = START_EVERY

    def __post_init__(self) -> None:
        check_int("start_every", self.start_every, minimum=1)

    def sample(self) -> bytes:
        """Returns the training text, as bytes, to train a tokenizer on."""
        return self.train.tobytes()

    def tokenized(
        self,
        vocabulary: Vocabulary,
        start_id: int | None = None,
        start_every: int = START_EVERY,
    ) -> "Corpus":
        """Makes the same text, from a corpus of bytes, in another vocabulary.

        Args:
            vocabulary: `Vocabulary`. A character that is cut in two at either end of
                the text is left out. The vocabulary of bytes changes nothing. Special
                tokens that are written in the text count no bytes.
            start_id: int or None. The token before a prompt when the model generates.
                Some training windows then begin with it, in place of their first token,
                so that the model knows both. Defaults to None.
            start_every: int >= 1. One in so many windows does. With 1 each does, of the
                held-out text too: what Gemma needs. Defaults to 4.

        Returns:
            `Corpus`. If the bytes of its tokens do not add up to those of the text (the
            tokenizer folds characters, for example), `token_bytes` is scaled so that
            they do.
        """
        if vocabulary.fingerprint == byte_vocabulary().fingerprint:
            return self
        encode, token_bytes = vocabulary.encode, vocabulary.token_bytes
        texts = [
            part.tobytes().decode("utf-8", errors="ignore")
            for part in (self.train, self.validation)
        ]
        kind = np.min_scalar_type(len(token_bytes) - 1)
        train, validation = (np.asarray(encode(text)).astype(kind) for text in texts)
        counted = token_bytes[train].sum() + token_bytes[validation].sum()
        there = sum(len(text.encode()) for text in texts)
        found = np.bincount(np.concatenate([train, validation]).astype("int64"))
        for silent in np.flatnonzero((found > 0) & (token_bytes[: len(found)] == 0)):
            written = vocabulary.decode([int(silent)])
            if written:
                written_times = sum(text.count(written) for text in texts)
                there -= written_times * len(written.encode())
        scale = there / counted if counted else 1.0
        text = (train, validation, self.description, token_bytes * scale)
        return Corpus(*text, start_id, start_every)

    @property
    def counted(self) -> float:
        """float, the share of the training tokens that the loss counts: all."""
        return 1.0

    def bytes_per_token(self, ids: np.ndarray) -> float:
        """Returns the mean bytes of text per token.

        Divide a loss in nats per token by it and by ln 2 to get bits per byte.

        Args:
            ids: int array of any shape. It must not be empty.

        Returns:
            float.
        """
        return float(self.token_bytes[ids].mean())

    def train_bytes_per_token(self) -> float:
        """Returns the mean bytes per token of the training text."""
        return self.bytes_per_token(self.train)

    def fingerprint(self) -> str:
        """Returns a str, a digest that identifies the tokens of this corpus."""
        digest = hashlib.blake2b(digest_size=8)
        for part in (self.train, self.validation):
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()

    def check_length(self, length: int) -> None:
        """Raises an error if sequences do not fit in the text.

        Args:
            length: int. Tokens per sequence.

        Raises:
            TextError: If either part is too short for one sequence.
        """
        self._check(len(self.train), len(self.validation), length)

    def _check(self, train: int, validation: int, length: int) -> None:
        unit = "byte" if (self.token_bytes == 1).all() else "token"
        check_parts(train, validation, self.description, length, unit)

    def batch(self, step: int, *, seed: int, batch_size: int, length: int) -> Batch:
        """Returns the training batch of one step: windows at random places.

        It depends on its arguments alone, so a resumed run, or another model trained
        for comparison, reads the same.

        Args:
            step: int >= 0. The step.
            seed: int >= 0. Seed of the places.
            batch_size: int. Number of windows.
            length: int. Tokens per window.

        Returns:
            Pair of int32 arrays `(batch_size, length)`: tokens, and the token that
            follows each.
        """
        self._check(len(self.train), length + 1, length)
        random = np.random.default_rng([seed, step])
        starts = random.integers(0, len(self.train) - length, size=batch_size)
        x, y = _windows(self.train, starts, length)
        return with_starts(x, step, self.start_id, every=self.start_every), y

    def batches(
        self,
        *,
        seed: int,
        batch_size: int,
        length: int,
        start_step: int = 0,
        share: BatchShard = ALL,
    ) -> Iterator[Batch]:
        """Yields `batch` of `start_step`, `start_step + 1`, ... without end.

        Args:
            seed: int >= 0. Seed of the places.
            batch_size: int. Windows per step, of all processes together.
            length: int. Tokens per window.
            start_step: int. The step to begin or resume at. Defaults to 0.
            share: `BatchShard`. Which windows of a batch to yield. Defaults to all.

        Yields:
            Pairs as `batch` returns them; per step as many as the share has parts.
        """
        step = start_step
        while True:
            x, y = self.batch(step, seed=seed, batch_size=batch_size, length=length)
            for part in range(share.parts):
                rows = share.rows(part, batch_size)
                yield x[rows], y[rows]
            step += 1

    def validation_windows(self, *, length: int, limit: int | None = None) -> Batch:
        """Returns the held-out text in windows that do not overlap.

        Args:
            length: int. Tokens per window.
            limit: int or None. The most windows, evenly spread. Defaults to None: all.

        Returns:
            Pair of int32 arrays `(windows, length)`, as `batch`.
        """
        count = (len(self.validation) - 1) // length
        chosen = np.arange(count)
        if limit is not None and limit < count:
            chosen = np.arange(limit) * count // limit
        found = _windows(self.validation, chosen * length, length)
        return started(found, self.start_id, self.start_every)


def _windows(tokens: np.ndarray, starts: np.ndarray, length: int) -> Batch:
    rows = tokens[np.asarray(starts)[:, None] + np.arange(length + 1)].astype("int32")
    return rows[:, :-1], rows[:, 1:]
