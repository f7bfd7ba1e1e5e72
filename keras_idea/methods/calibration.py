"""Reads the data on which a model is measured, and measures it."""

import contextlib
import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea._keras.layers import without_remat
from keras_idea._keras.resumed import Kept, PassEnd, resuming
from keras_idea._typing import Tensor
from keras_idea._validation import check_int
from keras_idea.errors import ArgumentError
from keras_idea.methods.captures import Capture, Look, Statistic, Sums

#: Arrays, a dict of them, (x, y), or batches of such.
Data: TypeAlias = Tensor | dict[str, Tensor] | tuple[Any, ...] | Iterable[Any]


class Batch(NamedTuple):
    """One batch: the model's inputs, their padding masks by name, and the targets."""

    inputs: Any
    masks: dict[str, Tensor]
    targets: Any = None
    sample_weight: Any = None


class Samples:
    """Iterates over data in batches, as often as needed; a generator is kept in memory.

    Args:
        data: samples of the model's inputs: an array, a dict of arrays, `(x, y)` or
            `(x, y, sample_weight)`; or batches of such.
        num_samples: int >= 1. The most samples to use. Defaults to 1024.
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.

    Raises:
        ValueError: If `data` are not samples.

    Example:
    >>> [batch.inputs.shape for batch in Samples(np.ones((5, 2)), batch_size=3)]
    [(3, 2), (2, 2)]
    """

    def __init__(
        self,
        data: Data,
        num_samples: int = 1024,
        batch_size: int = 32,
    ) -> None:
        if data is None:
            raise ArgumentError(
                "`data` are needed: samples of the model's inputs. Received: data=None."
            )
        self._data = data
        self._num_samples = check_int("num_samples", num_samples, minimum=1)
        self._batch_size = check_int("batch_size", batch_size, minimum=1)
        self._kept: list[Batch] | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over the batches."""
        if self._kept is None and isinstance(self._data, Iterator):
            self._kept = list(self._batches())
        return self._batches() if self._kept is None else iter(self._kept)

    def _batches(self) -> Iterator[Batch]:
        left = self._num_samples
        for data in self._parts():
            parts = tuple(data) if isinstance(data, (tuple, list)) and data else (data,)
            inputs, *others = (*parts, None, None)[:3]
            size = _count(inputs, self._data)
            named = inputs.items() if isinstance(inputs, dict) else ()
            masks = {n: mask for n, mask in named if n.endswith("padding_mask")}
            batch = Batch(inputs, masks, *others)
            yield batch if size <= left else _cut(batch, 0, left)
            left -= size
            if left <= 0:
                return
        if left == self._num_samples:
            raise ArgumentError("`data` hold no sample. Give at least one.")

    def _parts(self) -> Iterator[Any]:
        """Yields the data of single batches."""
        data = self._data
        if isinstance(data, (tuple, dict)) or hasattr(data, "shape"):
            inputs = data[0] if isinstance(data, tuple) and data else data
            total = _count(inputs, data)
            for start in range(0, total, self._batch_size):
                yield _cut(data, start, start + self._batch_size)
        else:
            yield from data if hasattr(data, "__iter__") else [data]


def _count(inputs: Any, data: Any) -> int:
    """Returns the number of samples; raises if something is not an array of them."""
    arrays = keras.tree.flatten(inputs)
    wrong = [a for a in arrays if not len(getattr(a, "shape", ()))]
    if wrong or not arrays:
        held = type(wrong[0]).__name__ if wrong else "nothing"
        raise ArgumentError(
            "`data` must be samples of the model's inputs: an array, (x, y), a dict of "
            f"arrays, or batches of such. Received: a {type(data).__name__} with "
            f"{held}. Convert it to arrays."
        )
    return len(arrays[0])


def _cut(arrays: Any, start: int, stop: int) -> Any:
    """Returns the samples from `start` to `stop` of arrays in a structure."""
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else leaf[start:stop], arrays
    )


def captured(
    model: keras.Model,
    captures: Sequence[Capture],
    samples: Iterable[Batch],
    eager: bool = False,
) -> list[tuple[np.ndarray, float]]:
    """Runs a model in evaluation mode over samples, and sums what captures find.

    Returns (sums, samples) for each capture, in float64; the model is unchanged.
    `eager` compiles nothing, which is faster for few samples.
    """
    runner = _Runner(model, captures)
    runner.run_eagerly = eager
    totals = [(np.zeros(()), 0.0)] * len(captures)
    with contextlib.ExitStack() as changes:
        for capture in captures:
            changes.enter_context(capture.looking())
        # A rematerialized call would not let the statistics out.
        changes.enter_context(without_remat(model))
        for batch in samples:
            given = {"inputs": batch.inputs, "masks": batch.masks}
            found = runner.predict_on_batch(given)
            totals = [
                (total + sums.astype("float64"), count + float(n))
                for (total, count), (sums, n) in zip(totals, found, strict=True)
            ]
    return totals


class _Runner(keras.Model):
    """Runs the model, and returns what the captures found."""

    def __init__(self, model: keras.Model, captures: Sequence[Capture]) -> None:
        super().__init__(name="calibration")
        self.model, self.captures = model, captures
        self.built = True

    def call(self, batch: dict[str, Any]) -> list[tuple[Tensor, Tensor]]:
        masks = dict(batch["masks"])
        for capture in self.captures:
            capture.padding_masks, capture.found = masks, None
        with contextlib.suppress(PassEnd):
            self.model(batch["inputs"], training=False)
        uncalled = [c.name for c in self.captures if c.found is None]
        if uncalled:
            raise ArgumentError(
                f"The calibration data do not reach {', '.join(uncalled)}: the model's "
                "forward pass does not call it. Use method='sensitivity', or leave it "
                "out with `groups`."
            )
        return [c.found for c in self.captures if c.found is not None]


class Passes:
    """Runs the same samples through a model once per group, in the model's order.

    Between two passes a group's weights may change, if they are used after its
    activations are read. In a functional or `Sequential` model (nested ones, too), a
    pass resumes at the outermost layer in which the last one ended, so a layer is
    called once, plus once per group in it. Host memory holds its inputs. A model with
    its own `call` is run from the beginning. Nothing is compiled.
    """

    def __init__(self, model: keras.Model, samples: Samples) -> None:
        """Reads the data once."""
        self._model, self._batches = model, list(samples)
        self._kept: list[Kept] = [{} for _ in self._batches]

    def tokens_in_order(self, looks: Sequence[Look]) -> dict[int, float]:
        """Returns look's place -> the tokens that it sees in a sample of a batch.

        In the order in which the first batch comes to them; infinity under a padding
        mask.
        """
        seen: dict[int, float] = {}

        def note(place: int, hidden: Tensor, mask: Tensor | None) -> Sums:
            tokens = math.prod(hidden.shape[1:-1]) if mask is None else math.inf
            seen[place] = seen.get(place, 0) + tokens
            return ops.zeros(()), ops.ones(())

        captures = [look(functools.partial(note, i)) for i, look in enumerate(looks)]
        captured(self._model, captures, self._batches[:1], eager=True)
        return seen

    def samples(self) -> float:
        """Counts the samples; infinity if their lengths differ by the batch."""
        inputs = [keras.tree.flatten(batch.inputs) for batch in self._batches]
        if len({tuple(each.shape[1:] for each in batch) for batch in inputs}) > 1:
            return math.inf
        return sum(len(batch[0]) for batch in inputs)

    def sums(self, look: Look, statistic: Statistic) -> np.ndarray:
        """Sums a statistic over all samples, in a pass up to what it looks at."""
        capture = look(statistic)
        capture.ends_pass = True
        total = np.zeros(())
        for batch, kept in zip(self._batches, self._kept, strict=True):
            with resuming(self._model, kept):
                [(sums, _)] = captured(self._model, [capture], [batch], eager=True)
            total = total + sums
        return total
