"""What a refit keeps of the samples: products of what a kernel reads, tokens.

Shapes: B samples, T tokens, R rows of the kernel that reads a group.
"""

from typing import Any

import numpy as np
from keras import ops

from keras_idea.methods.captures import Sums
from keras_idea.typing import Tensor

#: Of so many samples one is held out, to choose the ridge.
HELD_OUT = 4


class Products:
    """Adds up the products of what a kernel reads: `(2, R + 1, R + 1)`.

    The first is of the samples to fit on, the second of those held out. The last row
    and column are of a one, for the bias. From all values the mean of the first batch
    is taken: in float32 a large mean would leave few digits to what varies.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.shift: Any = None

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Sums:
        """What a batch adds: a `HiddenStatistic`."""
        batch, rows = hidden.shape[0], hidden.shape[-1]
        hidden = ops.reshape(ops.cast(hidden, "float32"), (batch, -1, rows))
        counts_BT1 = _counts(hidden, mask)
        # Not a product, in which padding that is not finite would remain.
        hidden = ops.where(counts_BT1 > 0, hidden, 0.0)
        if self.shift is None:
            self.shift = ops.mean(hidden, axis=(0, 1))
        hidden = ops.where(counts_BT1 > 0, hidden - self.shift, 0.0)
        hidden_BTR = ops.concatenate([hidden, counts_BT1], axis=-1)
        parts = _parts(self.samples, batch)
        self.samples += batch
        grams = [_gram(ops.take(hidden_BTR, part, axis=0)) for part in parts]
        return ops.stack(grams), ops.ones(())

    def unshifted(self, gram: np.ndarray) -> np.ndarray:
        """A sum of the products, of values that the shift was taken from."""
        back = np.eye(len(gram))
        back[-1, :-1] = ops.convert_to_numpy(self.shift)
        return back.T @ gram @ back


class Tokens:
    """Counts the tokens to fit on, and those held out: `(2,)`."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, hidden: Tensor, mask: Tensor | None) -> Sums:
        """What a batch adds: a `HiddenStatistic`."""
        batch = hidden.shape[0]
        counts_BT1 = _counts(ops.reshape(hidden, (batch, -1, hidden.shape[-1])), mask)
        parts = _parts(self.samples, batch)
        self.samples += batch
        tokens = [ops.sum(ops.take(counts_BT1, part, axis=0)) for part in parts]
        return ops.stack(tokens), ops.ones(())


def _counts(hidden_BTR: Tensor, mask: Tensor | None) -> Tensor:
    """1 for each token that counts, float32 `(B, T, 1)`."""
    counts_BT1 = ops.ones_like(hidden_BTR[..., :1], dtype="float32")
    if mask is None:
        return counts_BT1
    mask_BT1 = ops.reshape(mask, ops.shape(counts_BT1))
    return ops.cast(ops.cast(mask_BT1, "bool"), "float32")  # of any type


def _parts(before: int, batch: int) -> list[np.ndarray]:
    """The places in a batch of the samples to fit on, and of those held out."""
    held = np.arange(before, before + batch) % HELD_OUT == HELD_OUT - 1
    return [np.flatnonzero(part) for part in (~held, held)]


def _gram(hidden_BTR: Tensor) -> Tensor:
    flat = ops.reshape(hidden_BTR, (-1, hidden_BTR.shape[-1]))
    return ops.matmul(ops.transpose(flat), flat)
