"""Statistics of activations over given samples, with the weights as they are."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.errors import ArgumentError
from keras_idea.keras_private.layers import has_call, without_remat
from keras_idea.keras_private.resumed import Kept, PassEnd, resuming
from keras_idea.methods.captures import (
    Capture,
    Look,
    Statistic,
    Sums,
)
from keras_idea.typing import Tensor
from keras_idea.validation import what_was_raised

_MUST_BE = (
    "`data` must be samples of the model's inputs: an array, (x, y), a dict of arrays, "
    "or batches of such."
)
#: Arrays, a dict of them, or batches of either.
Samples: TypeAlias = Tensor | dict[str, Tensor] | Iterable[Any]


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Data on which a model is measured before it is cut.

    Attributes:
        data: samples of the model's inputs, as `Activation` takes them.
        num_samples: int >= 1. The most samples to use. Defaults to 1024.
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.
        padding_mask: array `(samples, tokens)` or None. As of `Activation`. Defaults
            to None.
    """

    data: Samples
    num_samples: int = 1024
    batch_size: int = 32
    padding_mask: Tensor | None = None


def captured(
    model: keras.Model,
    captures: Sequence[Capture],
    samples: Calibration,
    eager: bool = False,
) -> list[tuple[np.ndarray, float]]:
    """Runs a model in evaluation mode over samples; sums what captures find.

    A statistic of heads is given `(..., R)`, the features of all heads side by side.
    `eager`: nothing is compiled, which is faster for few samples. The model and its
    variables stay as they are.

    Returns:
        list of (sums, samples) for each capture, in float64.
    """
    return _found(model, captures, _batches(samples), eager)


class Passes:
    """Passes over the same samples, for one group after another in a model's order.

    Between two passes a group's weights may change, but only those that are used after
    its activations are read. In a functional or `Sequential` model, nested ones too, a
    pass resumes at the outermost layer in which the last one ended. For each batch,
    host memory holds the inputs of the layers from there on. So all passes together
    call such a layer once, plus once per group in it. A model with a `call` of its own
    is run from its beginning each time. Nothing is compiled.
    """

    def __init__(self, model: keras.Model, samples: Calibration) -> None:
        """Reads the data once."""
        self._model, self._batches = model, list(_batches(samples))
        self._kept: list[Kept] = [{} for _ in self._batches]

    def tokens_in_order(self, looks: Sequence[Look]) -> dict[int, float]:
        """Place of a look -> the tokens that it sees in a sample of the first batch.

        In the order in which the batch comes to them; infinity under a padding mask.
        """
        seen: dict[int, float] = {}

        def note(place: int, hidden: Tensor, mask: Tensor | None) -> Sums:
            tokens = math.prod(hidden.shape[1:-1]) if mask is None else math.inf
            seen[place] = seen.get(place, 0) + tokens
            return ops.zeros(()), ops.ones(())

        captures = [look(functools.partial(note, i)) for i, look in enumerate(looks)]
        _found(self._model, captures, self._batches[:1], eager=True)
        return seen

    def samples(self) -> float:
        """How many there are; infinity where their lengths differ by the batch."""
        inputs = [keras.tree.flatten(batch["inputs"]) for batch in self._batches]
        if len({tuple(each.shape[1:] for each in batch) for batch in inputs}) > 1:
            return math.inf
        return sum(len(batch[0]) for batch in inputs)

    def sums(self, look: Look, statistic: Statistic) -> np.ndarray:
        """The sums of a statistic, over all samples: a pass up to what it looks at."""
        capture = look(statistic)
        capture.ends_pass = True
        scopes = [resuming(self._model, kept) for kept in self._kept]
        with capture.looking():
            found = _run(self._model, [capture], self._batches, True, scopes)
        [(sums, _)] = _require_samples(found)
        return sums


def check_callable(model: keras.layers.Layer) -> None:
    """Refuses a model without `call`, which no samples can be run through."""
    if not has_call(model):
        raise ArgumentError(
            f"Model '{model.name}' has no `call`, so a pruning method cannot run it on "
            "`data`. Use method='sensitivity', or give the model a `call`."
        )


def refitting(
    data: Samples | None,
    num_samples: int,
    batch_size: int,
    padding_mask: Tensor | None = None,
) -> Calibration:
    """A method's `refit_data`; refuses a refit without data."""
    if data is None:
        raise ArgumentError(
            "refit=True fits layers to `data`. Give samples of the model's inputs. "
            "Received: data=None."
        )
    if isinstance(data, Iterator):
        raise ArgumentError(
            "refit=True reads `data` more than once, and a generator can be read once. "
            f"Received: {type(data).__name__}. Give arrays, a list of batches, "
            "or a dataset."
        )
    return Calibration(data, num_samples, batch_size, padding_mask)


def _found(
    model: keras.Model,
    captures: Sequence[Capture],
    batches: Iterable[Any],
    eager: bool,
) -> list[tuple[np.ndarray, float]]:
    with contextlib.ExitStack() as changes:
        for capture in captures:
            changes.enter_context(capture.looking())
        return _require_samples(_run(model, captures, batches, eager))


def _require_samples(
    totals: list[tuple[np.ndarray, float]] | None,
) -> list[tuple[np.ndarray, float]]:
    if totals is None:
        raise ArgumentError("The calibration data hold no sample. Give at least one.")
    return totals


def _run(
    model: keras.Model,
    captures: Sequence[Capture],
    batches: Iterable[Any],
    eager: bool,
    scopes: Iterable[contextlib.AbstractContextManager[None]] | None = None,
) -> list[tuple[np.ndarray, float]] | None:
    """The sums of what captures find, over all batches; None: there was none.

    Each batch in a scope of its own, if there are any. Refuses data that the model
    cannot be called on.
    """
    check_callable(model)
    runner = _Runner(model, captures)
    runner.run_eagerly = eager
    totals = None
    # A rematerialized call would not let the statistics out.
    with without_remat(model):
        scopes = scopes or itertools.repeat(contextlib.nullcontext())
        for batch, scope in zip(batches, scopes, strict=False):
            with calling(model, batch["inputs"]), scope:
                sums_and_counts = runner.predict_on_batch(batch)
            sums_and_counts = [
                (sums.astype("float64"), float(n)) for sums, n in sums_and_counts
            ]
            if totals is None:
                totals = sums_and_counts
            else:
                pairs = zip(totals, sums_and_counts, strict=True)
                totals = [(a + b, n + more) for (a, n), (b, more) in pairs]
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
        found = [c.found for c in self.captures if c.found is not None]
        if len(found) < len(self.captures):
            uncalled = [c.name for c in self.captures if c.found is None]
            raise ArgumentError(
                f"The calibration data do not reach {', '.join(uncalled)}: the model's "
                "forward pass does not call it. Use method='sensitivity', or leave it "
                "out with `groups`."
            )
        return found


def _batches(samples: Calibration) -> Iterator[dict[str, Any]]:
    """Yields dicts of the inputs and of the padding masks, cut to the number."""
    data: Any = samples.data
    if isinstance(data, tuple) and data:  # the inputs of (x, y)
        data = data[0]
    if hasattr(data, "shape") or isinstance(data, dict):
        _check_arrays(data, data)
        arrays = {"inputs": data, "mask": samples.padding_mask}
        batches = slices_of(arrays, data, samples.batch_size)
    else:
        batches = _iterator(data)
        batches = ({"inputs": item, "mask": None} for item in batches)
    left = samples.num_samples
    for batch in batches:
        inputs, mask = batch["inputs"], batch["mask"]
        if isinstance(inputs, (tuple, list)):
            inputs = inputs[0] if inputs else None  # and not the targets
        masks = {} if mask is None else {"padding_mask": mask}
        if isinstance(inputs, dict) and not masks:
            masks = {k: v for k, v in inputs.items() if k.endswith("padding_mask")}
        _check_arrays(inputs, data)
        batch = {"inputs": inputs, "masks": masks}
        size = len(keras.tree.flatten(inputs)[0])
        yield batch if size <= left else part_of(batch, 0, left)
        left -= size
        if left <= 0:
            return


def _iterator(data: Any) -> Iterator[Any]:
    try:
        return iter(data)
    except TypeError:
        raise ArgumentError(
            f"{_MUST_BE} Received: an object of type {type(data).__name__}. Call it, "
            "or make arrays of it, first."
        ) from None


def _check_arrays(inputs: Any, data: Any) -> None:
    """Refuses inputs in which something is no array with an axis of samples."""
    wrong = [a for a in keras.tree.flatten(inputs) if not len(getattr(a, "shape", ()))]
    if wrong:
        raise ArgumentError(
            f"{_MUST_BE} Received: a {type(data).__name__} that holds "
            f"{type(wrong[0]).__name__}. Make arrays of it: numpy.asarray(data)."
        )


@contextlib.contextmanager
def calling(model: keras.Model, inputs: Any) -> Iterator[None]:
    """A scope for calling a model; if the call fails, the error describes the data."""
    try:
        yield
    except ArgumentError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        shapes = [tuple(getattr(a, "shape", ())) for a in keras.tree.flatten(inputs)]
        of = (
            f"inputs of shape {' and '.join(map(str, shapes))}"
            if all(shapes)
            else (f"a {type(inputs).__name__}")
        )
        raise ArgumentError(
            f"Model '{model.name}' cannot be called on `data`. Received: {of} "
            f"({what_was_raised(error)}). Give samples of the model's inputs."
        ) from error


def slices_of(arrays: Any, inputs: Any, size: int) -> Iterator[Any]:
    """Yields batches of arrays in a structure; `inputs` says how many samples."""
    total = len(keras.tree.flatten(inputs)[0])
    for start in range(0, total, size):
        yield part_of(arrays, start, start + size)


def part_of(batch: Any, start: int, stop: int) -> Any:
    """The samples from `start` to `stop` of arrays in a structure; None stays."""
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else leaf[start:stop], batch
    )
