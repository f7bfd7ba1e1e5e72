"""A text in memory as token ids, and the windows of it that a model reads."""

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np

from keras_idea.data.text.vocabulary import Vocabulary, byte_vocabulary
from keras_idea.data.tokens.interfaces import (
    ALL,
    Batch,
    Share,
    check_parts,
    with_starts,
)


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Text to train on and text held out, as token ids.

    `load_text` gives one whose tokens are bytes; `tokenized` makes another of it.

    Args:
        train: int array `(tokens,)`.
        validation: int array `(tokens,)`.
        description: str, where the text comes from.
        token_bytes: float array `(vocabulary,)`, the bytes of text that each id
            stands for. Default: an id is a byte.
        start_id: int or None, the token that some training windows begin with.

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

    def sample(self) -> bytes:
        """The text to train on, bytes: what a tokenizer may be trained on."""
        return self.train.tobytes()

    def tokenized(
        self, vocabulary: Vocabulary, start_id: int | None = None
    ) -> "Corpus":
        """The same text, a corpus of bytes, in another vocabulary.

        Args:
            vocabulary: `Vocabulary`. A character that was cut in two at either end
                of the text is left out. With that of bytes nothing changes.
            start_id: int or None, the token that stands before a prompt when the
                model writes. Every fourth training window then begins with it,
                instead of its first token, so that the model knows both.

        Returns:
            `Corpus`. If the tokenizer changes the text (folds characters, say), so
            that its tokens' bytes do not add up to the text's, all of them are
            scaled until they do.
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
        scale = there / counted if counted else 1.0
        return Corpus(
            train, validation, self.description, token_bytes * scale, start_id
        )

    def bytes_per_token(self, ids: np.ndarray) -> float:
        """Bytes of text that tokens stand for, on average.

        A loss in nats per token, divided by it and by ln 2, is in bits per byte.

        Args:
            ids: int array of any shape, not empty.

        Returns:
            float.
        """
        return float(self.token_bytes[ids].mean())

    def train_bytes_per_token(self) -> float:
        """As `bytes_per_token`, of the text to train on."""
        return self.bytes_per_token(self.train)

    def fingerprint(self) -> str:
        """A digest of its tokens, a str: tells this corpus from any other."""
        digest = hashlib.blake2b(digest_size=8)
        for part in (self.train, self.validation):
            digest.update(len(part).to_bytes(8, "little") + part.tobytes())
        return digest.hexdigest()

    def check_length(self, length: int) -> None:
        """Raises an error for sequences that do not fit in the text.

        Args:
            length: int, tokens per sequence.

        Raises:
            TextError: if either part is too short for one sequence.
        """
        self._check(len(self.train), len(self.validation), length)

    def _check(self, train: int, validation: int, length: int) -> None:
        unit = "byte" if (self.token_bytes == 1).all() else "token"
        check_parts(train, validation, self.description, length, unit)

    def batch(self, step: int, *, seed: int, batch_size: int, length: int) -> Batch:
        """The training batch of one step: windows at random places.

        A function of its arguments alone, so that a resumed run, or another
        model trained to compare, reads the same.

        Args:
            step: int >= 0.
            seed: int >= 0.
            batch_size: int, windows.
            length: int, tokens a window.

        Returns:
            Pair of int32 arrays `(batch_size, length)`: tokens, and the token
            that follows each.
        """
        self._check(len(self.train), length + 1, length)
        random = np.random.default_rng([seed, step])
        starts = random.integers(0, len(self.train) - length, size=batch_size)
        x, y = _windows(self.train, starts, length)
        return with_starts(x, step, self.start_id), y

    def batches(
        self,
        *,
        seed: int,
        batch_size: int,
        length: int,
        start_step: int = 0,
        share: Share = ALL,
    ) -> Iterator[Batch]:
        """Endless generator of `batch` for `start_step`, `start_step + 1`, ...

        Args:
            seed: int >= 0.
            batch_size: int, windows, of all processes together.
            length: int, tokens a window.
            start_step: int, the step of the first batch: where a run resumes.
            share: `Share`, which windows of a batch are asked for. Default: all.

        Yields:
            Pairs as `batch` returns them, as many a step as the share has parts.
        """
        step = start_step
        while True:
            x, y = self.batch(step, seed=seed, batch_size=batch_size, length=length)
            for part in range(share.parts):
                rows = share.rows(part, batch_size)
                yield x[rows], y[rows]
            step += 1

    def validation_windows(self, *, length: int, limit: int | None = None) -> Batch:
        """The held-out text in windows that do not overlap.

        Args:
            length: int, tokens a window.
            limit: int or None, at most so many windows, evenly spread.

        Returns:
            Pair of int32 arrays `(windows, length)`, as `batch`.
        """
        count = (len(self.validation) - 1) // length
        chosen = np.arange(count)
        if limit is not None and limit < count:
            chosen = np.arange(limit) * count // limit
        return _windows(self.validation, chosen * length, length)


def _windows(tokens: np.ndarray, starts: np.ndarray, length: int) -> Batch:
    rows = tokens[np.asarray(starts)[:, None] + np.arange(length + 1)].astype("int32")
    return rows[:, :-1], rows[:, 1:]
