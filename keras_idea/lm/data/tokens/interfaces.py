"""What the batches of every text have in common."""

import dataclasses
from typing import TypeAlias

import numpy as np

from keras_idea.errors import TextError
from keras_idea.validation import plural

#: Arrays `(batch_size, length)`: int32 tokens, the token that follows each, and of
#: chat records the float32 weight of that one in the loss.
Batch: TypeAlias = tuple[np.ndarray, ...]

# One window in so many begins with the start token, in corpora that have one.
START_EVERY = 4


@dataclasses.dataclass(frozen=True)
class BatchShard:
    """Which windows of a batch are asked for: in parts, and one process's of each.

    Args:
        parts: int, micro-batches that a batch is cut into, one after another.
        index: int in [0, count), which of the equal shares of each part.
        count: int, shares of a part.

    Example:
    >>> [BatchShard(parts=2, index=1, count=2).rows(part, 8) for part in range(2)]
    [slice(2, 4, None), slice(6, 8, None)]
    """

    parts: int = 1
    index: int = 0
    count: int = 1

    def rows(self, part: int, batch_size: int) -> slice:
        """slice, the places in the batch of a part's windows."""
        size = batch_size // (self.parts * self.count)
        first = (part * self.count + self.index) * size
        return slice(first, first + size)


ALL = BatchShard()


def check_parts(
    train: int, validation: int, description: str, length: int, unit: str
) -> None:
    """Refuses sequences that do not fit in either part; a token is called `unit`."""
    for part, size in (("train", train), ("validation", validation)):
        if size < length + 1:
            raise TextError(
                f"The {part} text ({description}) has {plural(size, unit)}; "
                f"a sequence of {plural(length, unit)} needs at least {length + 1}. "
                "Give more text, or shorter sequences"
                f"{', or hold out more' if part == 'validation' else ''}."
            )


def with_starts(
    x: np.ndarray,
    step: int,
    start_id: int | None,
    first_row: int = 0,
    every: int = START_EVERY,
) -> np.ndarray:
    """`x`, changed in place: one in `every` windows begins with the start token.

    If there is one. Another window of the batch is the first to change each `step`;
    `first_row` is the place in the batch of the first one in `x`.
    """
    if start_id is not None:
        x[(step + first_row + np.arange(len(x))) % every == 0, 0] = start_id
    return x


def started(windows: Batch, start_id: int | None, every: int) -> Batch:
    """Held-out windows: each begins with the start token if all training windows do."""
    x, y = windows
    if every != 1 or start_id is None:
        return x, y
    return with_starts(x.copy(), 0, start_id, every=1), y
