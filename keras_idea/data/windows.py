"""A corpus of bytes, and the windows of it that a model reads."""

import dataclasses

import numpy as np


class TextError(ValueError):
    """Text that cannot be trained on; says what to give instead."""


@dataclasses.dataclass(frozen=True)
class ByteCorpus:
    """Text to train on and text held out, as bytes.

    Args:
        train: uint8 array `(bytes,)`.
        validation: uint8 array `(bytes,)`.
        description: str, where the text comes from.

    Example:
    >>> corpus = load_text("stdlib")
    >>> model.fit(corpus.batches(seed=0, batch_size=32, length=64),
    ...           steps_per_epoch=100,
    ...           validation_data=corpus.validation_windows(length=64))
    """

    train: np.ndarray
    validation: np.ndarray
    description: str

    def check_length(self, length):
        """Refuses sequences that do not fit in the text.

        Args:
            length: int, bytes a sequence.

        Raises:
            TextError: if either part is too short for one sequence.
        """
        for part in ("train", "validation"):
            size = len(getattr(self, part))
            if size < length + 1:
                raise TextError(
                    f"The {part} text ({self.description}) has {size} bytes; "
                    f"sequences of {length} bytes need at least {length + 1}. Give "
                    "more text, shorter sequences"
                    f"{', or hold out more' if part == 'validation' else ''}."
                )

    def batch(self, step, *, seed, batch_size, length):
        """The training batch of one step: windows at random places.

        A function of its arguments alone, so that a resumed run, or another
        model trained to compare, reads the same.

        Args:
            step: int >= 0.
            seed: int >= 0.
            batch_size: int, windows.
            length: int, bytes a window.

        Returns:
            Pair of int32 arrays `(batch_size, length)`: bytes, and the byte that
            follows each.
        """
        random = np.random.default_rng([seed, step])
        starts = random.integers(0, len(self.train) - length, size=batch_size)
        return _windows(self.train, starts, length)

    def batches(self, *, seed, batch_size, length, start_step=0):
        """Endless generator of `batch` for `start_step`, `start_step + 1`, ...

        Args:
            seed: int >= 0.
            batch_size: int, windows.
            length: int, bytes a window.
            start_step: int, the step of the first batch: where a run resumes.

        Yields:
            Pairs as `batch` returns them.
        """
        step = start_step
        while True:
            yield self.batch(step, seed=seed, batch_size=batch_size, length=length)
            step += 1

    def validation_windows(self, *, length, limit=None):
        """The held-out text in windows that do not overlap.

        Args:
            length: int, bytes a window.
            limit: int or None, at most so many windows, evenly spread.

        Returns:
            Pair of int32 arrays `(windows, length)`, as `batch`.
        """
        count = (len(self.validation) - 1) // length
        chosen = np.arange(count)
        if limit is not None and limit < count:
            chosen = np.arange(limit) * count // limit
        return _windows(self.validation, chosen * length, length)


def _windows(text, starts, length):
    rows = text[np.asarray(starts)[:, None] + np.arange(length + 1)].astype("int32")
    return rows[:, :-1], rows[:, 1:]
