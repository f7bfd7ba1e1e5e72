"""Batches for `fit`: shuffled anew each epoch, the same again from any step on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_idea.errors import ArgumentError, PositionError, TextError
from keras_idea.lm.data.text.vocabulary import fingerprint_of
from keras_idea.lm.data.tokens.cache import TokenCache, TokenRange
from keras_idea.validation import check_int, plural, require


def join_documents(
    documents: Iterable[Sequence[int] | np.ndarray], end_id: int, dtype: str = "int32"
) -> np.ndarray:
    """Joins the token ids of documents, each followed by the token that ends it.

    Args:
        documents: sequence of int arrays `(tokens,)`. The documents.
        end_id: int. The token that ends a document.
        dtype: str. Dtype of the result. Defaults to "int32".

    Returns:
        Array `(tokens,)`, the length of all documents plus one per document.

    Example:
    >>> join_documents([[1, 2], [3]], end_id=0)
    array([1, 2, 0, 3, 0], dtype=int32)
    """
    parts = [part for ids in documents for part in (ids, (end_id,))]
    if not parts:
        return np.zeros(0, dtype)
    return np.concatenate([np.asarray(part, dtype) for part in parts])


class PackedWindows:
    """Cuts a stream of tokens into numbered windows, without padding.

    Window `i` is `tokens[i * length : (i + 1) * length + 1]`: its first `length` tokens
    are read, its last `length` are predicted. Each window begins with the last token of
    the window before, each token is read in one window and predicted in one, and
    documents continue from window to window.

    Args:
        tokens: `TokenCache`, `TokenRange` or int array `(tokens,)`. The stream.
        length: int >= 1. Tokens read per window.

    Attributes:
        left_out: int. Tokens at the end of the stream, fewer than `length`, that no
            window predicts.

    Raises:
        TextError: If there are not enough tokens for one window.

    Example:
    >>> windows = PackedWindows(np.arange(10), length=4)
    >>> len(windows), windows.left_out
    (2, 1)
    >>> windows[1]
    (array([4, 5, 6, 7], dtype=int32), array([5, 6, 7, 8], dtype=int32))
    """

    def __init__(
        self, tokens: TokenCache | TokenRange | np.ndarray, length: int
    ) -> None:
        self.tokens, self.length = tokens, check_int("length", length, minimum=1)
        count, self.left_out = divmod(len(tokens) - 1, self.length)
        if count < 1:
            raise TextError(
                f"The text is too short: it has {plural(len(tokens), 'token')}, and a "
                f"window of {length} needs {length + 1}. Give more text, or a smaller "
                "`length`."
            )
        self._count = count

    def __len__(self) -> int:
        return self._count

    def arrays(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns windows as `fit` takes them for `validation_data`.

        Args:
            limit: int or None. The most windows, evenly spread. Defaults to None: all.

        Returns:
            Pair of int32 arrays `(windows, length)`: tokens, and the token that follows
            each.
        """
        chosen = list(range(self._count))
        if limit is not None and check_int("limit", limit, minimum=1) < self._count:
            chosen = [i * self._count // limit for i in range(limit)]
        x, y = zip(*(self[i] for i in chosen), strict=True)
        return np.stack(x), np.stack(y)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Pair of int32 arrays `(length,)`: tokens, and the one that follows each."""
        if not 0 <= index < self._count:
            raise IndexError(f"window {index} of {self._count}")
        start = int(index) * self.length
        row = self.tokens[start : start + self.length + 1].astype("int32")
        return row[:-1], row[1:]


if TYPE_CHECKING:
    import grain

# grain's shuffling counts in 32 bits: at length 1024, 4.4e12 tokens.
_MOST_WINDOWS = 2**32 - 1


class TokenBatches:
    """Makes training batches of a token cache, each a function of its step alone.

    Use it to resume a run exactly. An epoch is a permutation of all windows, another
    one each time. Epochs follow one another without a gap: step `s` takes the windows
    at places `s * batch_size` to `(s + 1) * batch_size - 1` of that endless sequence. A
    run that resumes at step `s` sees the batches that it would have seen. No epoch
    omits a window, even if `batch_size` does not divide their number.

    Args:
        cache: `TokenCache` or `TokenRange`. The tokens.
        length: int >= 1. Tokens per sequence.
        batch_size: int >= 1. Sequences per step, of all processes together.
        seed: int >= 0. Seed of the order. Defaults to 0.
        shard_index: int in [0, shard_count). The number of this process. Defaults to 0.
        shard_count: int >= 1. Processes that share the batch of each step and read
            different windows. Must divide `batch_size`. Defaults to 1.

    Attributes:
        windows: `PackedWindows`. The windows, by number.
        steps_per_epoch: float. Steps in which each window is seen once.

    Raises:
        MissingPackage: If grain is not installed.
        TextError: If the cache is too small for one window, or too large to shuffle.
        ValueError: If an argument is outside its range.

    Example:
    >>> batches = TokenBatches(cache, length=16, batch_size=4, seed=0)
    >>> data = batches.dataset()
    >>> _ = model.fit(data, steps_per_epoch=2, shuffle=False, verbose=0)
    >>> saved = batches.position(2)  # goes into a checkpoint
    >>> batches.restore(saved)  # the `start_step` of the resumed run
    2

    Reference: https://google-grain.readthedocs.io
    """

    def __init__(
        self,
        cache: TokenCache | TokenRange,
        length: int,
        batch_size: int,
        seed: int = 0,
        shard_index: int = 0,
        shard_count: int = 1,
    ) -> None:
        if not isinstance(cache, TokenCache | TokenRange):
            raise ArgumentError(
                "`cache` must be a `TokenCache` or a `TokenRange`. Received: "
                f"{type(cache).__name__}. `build_cache` makes one."
            )
        self.cache, self.windows = cache, PackedWindows(cache, length)
        self.batch_size = check_int("batch_size", batch_size, minimum=1)
        self.seed = check_int("seed", seed, minimum=0)
        self.shard_count = check_int("shard_count", shard_count, minimum=1)
        self.shard_index = check_int(
            "shard_index", shard_index, minimum=0, maximum=shard_count - 1
        )
        if batch_size % shard_count:
            raise ArgumentError(
                "`shard_count` must divide `batch_size`, the sequences of all shards "
                f"together. Received: batch_size={batch_size}, "
                f"shard_count={shard_count}."
            )
        if len(self.windows) >= _MOST_WINDOWS:
            raise TextError(
                f"{len(self.windows):,} windows are more than the {_MOST_WINDOWS:,} "
                "that can be shuffled. Give a larger `length`."
            )
        self.steps_per_epoch = len(self.windows) / batch_size
        grain = require("grain", "Reading batches of tokens")
        self._batches = self._in_order(grain.MapDataset.source(self.windows))
        self._ids = self._in_order(grain.MapDataset.range(len(self.windows)))

    def _in_order(self, dataset: "grain.MapDataset") -> "grain.MapDataset":
        """A `grain.MapDataset` of windows: shuffled, endless, this shard's, batched."""
        # grain's epoch `e` has the order of `seed + e`: neighbouring seeds would share
        # their epochs.
        mixed = int(fingerprint_of("order of windows", self.seed), 16) % 2**32
        dataset = dataset.shuffle(seed=mixed).repeat()
        # Neighbours in a batch stay together: put side by side, the shards are it.
        each = self.batch_size // self.shard_count
        parts = dataset.batch(each, drop_remainder=True)
        return parts[self.shard_index :: self.shard_count]

    def dataset(self, start_step: int = 0) -> "grain.MapDataset":
        """Returns the endless batches from a step on.

        Args:
            start_step: int >= 0. The step of the first batch. Defaults to 0.

        Returns:
            `grain.MapDataset` of pairs of int32 arrays `(batch_size / shard_count,
            length)`: tokens, and the token that follows each. `fit` needs
            `steps_per_epoch` with it. grain reads up to 500 batches ahead on 16
            threads. If this needs too much memory, give `fit`
            `dataset.to_iter_dataset(grain.ReadOptions(prefetch_buffer_size=16))`.
        """
        return self._batches[check_int("start_step", start_step, minimum=0) :]

    def sample_ids(self, step: int) -> np.ndarray:
        """Returns the numbers of the windows in the batch of one step.

        Args:
            step: int >= 0. The step.

        Returns:
            int array `(batch_size / shard_count,)`, each in [0, len(windows)), in the
            order of the batch's rows.
        """
        return self._ids[check_int("step", step, minimum=0)]

    def position(self, step: int) -> dict:
        """Returns the position to keep in a checkpoint: the next step, and its data.

        Args:
            step: int >= 0. Steps done.

        Returns:
            dict, JSON-serializable; the same on all processes.
        """
        step = check_int("step", step, minimum=0)
        return {"step": step, "data": self._identity()}

    def restore(self, position: Mapping) -> int:
        """Returns the step to resume at, after checking that the data are the same.

        Args:
            position: dict. What `position` returned.

        Returns:
            int, the `start_step` for `dataset`.

        Raises:
            PositionError: If it is not a position, or belongs to other data.
        """
        try:
            step = check_int("step", position["step"], minimum=0)
            saved = dict(position["data"])
        except (TypeError, KeyError, ValueError) as error:
            raise PositionError(
                f"No position in the data: {position!r} ({error}). Give what "
                "`TokenBatches.position` returned."
            ) from None
        here = self._identity()
        # Written once; how many processes read a batch does not change it.
        saved.pop("shard_count", None)
        names = [name for name in here | saved if here.get(name) != saved.get(name)]
        if names:
            different = "; ".join(
                f"{name}: {saved.get(name)!r} then, {here.get(name)!r} now"
                for name in names
            )
            raise PositionError(
                "The position belongs to other data, so the run cannot continue "
                f"exactly: {different}. Give the same text, tokenizer and settings, or "
                "begin a new run."
            )
        return step

    def _identity(self) -> dict[str, str | int]:
        return {
            "cache": self.cache.fingerprint,
            "windows": len(self.windows),
            "length": self.windows.length,
            "batch_size": self.batch_size,
            "seed": self.seed,
        }
