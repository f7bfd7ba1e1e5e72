"""Token ids in memory or in a file, and the windows of them that a model reads."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from keras_idea._files import check_folder, json_digest, replacing
from keras_idea._lm.data.vocabulary import Ids, Vocabulary
from keras_idea._validation import plural, require
from keras_idea.errors import ArgumentError, TextError

#: Arrays `(batch_size, length)`: int32 tokens, the token that follows each, and of
#: conversations the float32 weight of that one in the loss.
Batch: TypeAlias = tuple[np.ndarray, ...]
#: One window in so many begins with the start token, in texts that have one.
START_EVERY = 4
# Batches that are read ahead of training.
_AHEAD = 16
# Tokens that stand for all of a long text, in so many places of it.
_SAMPLED, _PLACES = 1 << 22, 64


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Holds tokens to train on and tokens held out; `open_text` makes it.

    Window `i` reads `length` tokens from token `i * length` on, and predicts the one
    after each. An epoch reads each window once, each epoch in a new order. A batch
    depends on its step and the seed only, so a run can resume at any step.

    Args:
        train: int array `(tokens,)`, in memory or mapped.
        held_out: int array `(tokens,)`, likewise.
        vocabulary: `Vocabulary`.
        description: str. Where the text comes from.
        start_id: int or None. The token before a prompt. It takes the place of the
            first token of some windows. Defaults to None.
        start_every: int >= 1. One window in so many begins with it. With 1 each does,
            of the held-out text too: what Gemma needs. Defaults to 4.
        row_length: int or None. The length of rows of whole conversations. Then a
            number is twice the id, plus 1 if the loss counts it. Defaults to None.

    Example:
    >>> from keras_idea.data import open_text
    >>> tokens = open_text(paths="text.txt")
    >>> _ = model.fit(tokens.batches(length=16, batch_size=4),
    ...               steps_per_epoch=2, shuffle=False,
    ...               validation_data=tokens.held_out_windows(16, limit=4), verbose=0)
    """

    train: np.ndarray
    held_out: np.ndarray
    vocabulary: Vocabulary
    description: str
    start_id: int | None = None
    start_every: int = START_EVERY
    row_length: int | None = None

    def batches(
        self,
        *,
        length: int,
        batch_size: int,
        seed: int = 0,
        start_step: int = 0,
        index: int = 0,
        count: int = 1,
    ) -> Any:
        """Returns batches without end, for `fit`.

        Args:
            length: int. Tokens per window.
            batch_size: int. Windows per step, of all processes together.
            seed: int >= 0. The seed of the orders. Defaults to 0.
            start_step: int. The step to begin or resume at. Defaults to 0.
            index: int. Which of `count` equal shares of each batch to read.
            count: int >= 1. The number of processes. Defaults to 1.

        Returns:
            `grain.IterDataset` of int32 arrays `(batch_size / count, length)`: tokens,
            and the token that follows each. For conversations, a third array is the
            float32 weight of that one in the loss.

        Raises:
            MissingPackage: If grain is not installed.
            TextError: If the text is shorter than a window.
        """
        grain = require("grain", "Reading batches of tokens")
        if batch_size % count:
            raise ArgumentError(
                f"`count` must divide batch_size={batch_size}. Received: {count}. "
                "Set another `batch_size`."
            )
        windows, size = self._count(self.train, length), batch_size // count
        # grain's epoch `e` has the order of `seed + e`: near seeds would share orders.
        order = grain.MapDataset.range(windows).shuffle(int(json_digest(seed)[:8], 16))
        batches = order.repeat().batch(size, drop_remainder=True)[index::count]
        batches = batches.map_with_index(
            lambda step, chosen: self._windows(
                self.train, chosen, length, (step * count + index) * size
            )
        )
        ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_AHEAD)
        return batches[start_step:].to_iter_dataset(ahead)

    def held_out_windows(self, length: int, limit: int | None = None) -> Batch:
        """Returns windows of the held-out text, which do not overlap.

        Args:
            length: int. Tokens per window.
            limit: int or None. The most windows, evenly spread. Defaults to None: all.

        Returns:
            Tuple of arrays `(windows, length)`, as of a batch.
        """
        windows = self._count(self.held_out, length)
        limit = windows if limit is None else min(windows, limit)
        chosen = np.arange(limit) * windows // limit
        return self._windows(self.held_out, chosen, length, None)

    def bytes_per_token(self, ids: np.ndarray | None = None) -> float:
        """Returns the mean bytes of text per token of an int array of any shape.

        Divide a loss in nats per token by it and by ln 2 to get bits per byte. None:
        of the training tokens that the loss counts.
        """
        if ids is None:
            found = _spread(self.train)
            ids = found if self.row_length is None else found[found & 1 == 1] >> 1
        return float(self.vocabulary.token_bytes[ids].mean())

    @property
    def counted(self) -> float:
        """float, the share of the training tokens that the loss counts."""
        counts = np.ones(1) if self.row_length is None else _spread(self.train) & 1
        return float(counts.mean())

    def fingerprint(self) -> str:
        """Returns a str that identifies the tokens, of a long text by a sample."""
        digest = hashlib.blake2b(digest_size=8)
        for part in (self.train, self.held_out):
            digest.update(f"{part.dtype}{len(part)}".encode())
            digest.update(_spread(part).tobytes())
        return digest.hexdigest()

    def check_length(self, length: int) -> None:
        """Raises a `TextError` if either part is shorter than a window."""
        for part in (self.train, self.held_out):
            self._count(part, length)

    def _count(self, tokens: np.ndarray, length: int) -> int:
        if self.row_length not in (None, length):
            raise ArgumentError(
                f"`length` must be {self.row_length}, the tokens of a row: another one "
                f"splits conversations. Received: {length}. Open the text again."
            )
        if len(tokens) <= length:
            part = "text to train on" if tokens is self.train else "held-out text"
            raise TextError(
                f"The {part} ({self.description}) has {plural(len(tokens), 'token')}; "
                f"a sequence of {length} needs {length + 1}. Give more text, or "
                "shorter sequences."
            )
        return (len(tokens) - 1) // length

    def _windows(
        self, tokens: np.ndarray, chosen: np.ndarray, length: int, place: int | None
    ) -> Batch:
        """Windows of tokens; `place`: of the first one in training, None: held out."""
        places = np.asarray(chosen)[:, None] * length + np.arange(length + 1)
        rows = tokens[places].astype("int32")
        if self.row_length is not None:  # a template has its own begin
            weights = (rows[:, 1:] & 1).astype("float32")
            return rows[:, :-1] >> 1, rows[:, 1:] >> 1, weights
        x, y = rows[:, :-1].copy(), rows[:, 1:]
        if self.start_id is not None and (place is not None or self.start_every == 1):
            starts = ((place or 0) + np.arange(len(x))) % self.start_every == 0
            x[starts, 0] = self.start_id
        return x, y


def _spread(tokens: np.ndarray) -> np.ndarray:
    """All tokens, or of a long text pieces of it, evenly spread."""
    if len(tokens) <= _SAMPLED:
        return np.asarray(tokens)
    size = _SAMPLED // _PLACES
    starts = np.linspace(0, len(tokens) - size, _PLACES).astype("int64")
    return np.concatenate([tokens[start : start + size] for start in starts])


def stored(
    rows: Callable[[], Iterable[Ids]],
    size: int,
    folder: str | os.PathLike | None = None,
    key: Any = None,
) -> np.ndarray:
    """Returns rows of ids below `size`, in memory or mapped from a file of `folder`.

    The file is named after `key`, and appears whole or not at all.

    Raises:
        TextError: If there are no ids, or one is not in the vocabulary.
    """
    dtype = np.min_scalar_type(size - 1)

    def checked() -> Iterable[np.ndarray]:
        empty = True
        for ids in rows():
            if len(ids):
                empty = False
                if not 0 <= np.min(ids) <= np.max(ids) < size:
                    raise TextError(f"The tokenizer gave an id outside of 0 to {size}.")
                yield np.asarray(ids, dtype)
        if empty:
            raise TextError("There is no text. Give files that hold some.")

    if folder is None:
        return np.concatenate(list(checked()))
    path = pathlib.Path(check_folder("cache", folder)) / f"{json_digest(key)[:16]}.ids"
    if not path.exists():
        with replacing(path) as temporary, open(temporary, "wb") as file:
            for ids in checked():
                ids.tofile(file)
    return np.memmap(path, dtype, "r")
