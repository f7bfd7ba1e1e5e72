"""Two models compared by what they compute: the only comparison of files and copies.

Shapes: B batch, T tokens, P prompt tokens, V vocabulary (of an encoder: its width).
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea._keras.callbacks import warn_user
from keras_idea._keras.float32_products import float32_products
from keras_idea._keras.layers import called_parts, computing_in_float32, walk
from keras_idea._keras.models import calls_in, graph_of
from keras_idea._keras.symbolic import example_of, open_sizes
from keras_idea._validation import what_was_raised
from keras_idea.errors import ArgumentError, ExportFailed
from keras_idea.hub.inputs import text_inputs

_PROMPT, _NEW = 8, 16
# Largest difference of a narrow copy, as a share of the largest output, by the dtype
# they compute in. Measured: 4.5e-7 to 4.4e-6 in float32. Half precision is computed in
# float32, except where code casts itself.
_COPY_TOLERANCES = {"float32": 5e-5, "float64": 1e-6}
_HALF_TOLERANCE = 5e-3
#: Where tokenizers differ: runs of spaces and lines, digits, apostrophes, scripts.
TEXTS = (
    "the quick brown fox jumps over the lazy dog",
    "The capital of France is Paris. In 2024, 1,234 people read:\n\n    it's a naïve "
    "test of words, numbers and spaces, such as  these.\n",
    "def f(x):\n    if x > 1024:\n\n\n        return x + 10.25\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t\tend \n\n",
    "WE'LL they'd\r\nnew\u00a0line  3,141,592",
)

#: What computes outputs (B, ..., V) of token ids (B, T), or of images.
Outputs: TypeAlias = Callable[[Any], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Match:
    """How well two models agree."""

    difference: float  # the largest between their outputs
    allowed: float  # the largest that passes
    largest: float  # the largest output
    greedy: int = 0  # greedy tokens that are equal, or tied; 0: no language model

    def __str__(self) -> str:
        """One line for the user."""
        greedy = f", {self.greedy} greedy tokens equal" if self.greedy else ""
        return (
            f"outputs within {self.difference:.1e} of {self.largest:.3g} (allowed "
            f"{self.allowed:.1e}){greedy}"
        )


@dataclasses.dataclass(frozen=True)
class Expected:
    """Inputs and outputs of the model that is right, so that it need not be kept."""

    pairs: list[tuple[Any, np.ndarray]]  # of a language model, the last is greedy text
    causal: bool  # whether the outputs choose the next token


def expected_of(outputs: Outputs, rows: Iterable[Any], causal: bool) -> Expected:
    """Computes the outputs of rows of inputs, and of a greedy text."""
    rows = list(rows)
    if causal:
        rows.append(_greedy_text(outputs, rows[-1][:1]))
    return Expected([(row, outputs(row)) for row in rows], causal)


def compare(
    expected: Expected,
    received: Outputs,
    tolerance: float,
    error: type[Exception] = ExportFailed,
    least: float = 1.0,
) -> Match:
    """Compares the outputs of a model with those that another computed.

    Args:
        expected: `Expected`, of the model that is right.
        received: function, the outputs of the other.
        tolerance: float, the largest difference, as a share of the largest output.
        error: class of the error to raise.
        least: float, what counts as the largest output if that is smaller.

    Raises:
        ExportFailed, or `error`: if outputs have another shape, differ by more, or
            are not finite.
    """
    pairs = [(outputs, received(row)) for row, outputs in expected.pairs]
    for a, b in pairs:
        if a.shape != b.shape:
            raise error(f"Outputs of shape {b.shape} were computed, not {a.shape}.")
    largest = max(float(np.abs(a).max(initial=0)) for a, _ in pairs)
    allowed = tolerance * max(least, largest)
    differences = [float(np.abs(a - b).max(initial=0)) for a, b in pairs]
    difference = float(np.max(differences))  # unlike `max`, NaN if one is NaN
    # Written so that NaN fails.
    if not (difference <= allowed and np.isfinite(difference)):
        raise error(
            "It computes something else: its outputs, or added losses, differ by "
            f"{difference:.2g} of {largest:.3g}, allowed are {allowed:.1e}."
        )
    greedy = 0
    if expected.causal:
        greedy = _greedy_equal(pairs[-1][1], expected.pairs[-1][0], allowed)
    return Match(difference, allowed, largest, greedy)


def _greedy_text(outputs: Outputs, ids_1T: np.ndarray) -> np.ndarray:
    """The row's first tokens, continued by a model's choices."""
    length = ids_1T.shape[1]
    ids_1T = ids_1T.copy()
    for place in range(min(_PROMPT, length - 1), min(_PROMPT + _NEW, length)):
        # Always of one length, so that nothing is compiled twice.
        ids_1T[0, place] = outputs(ids_1T)[0, place - 1].argmax()
    return ids_1T[:, : _PROMPT + _NEW]


def _greedy_equal(logits_1TV: np.ndarray, ids_1T: np.ndarray, allowed: float) -> int:
    """Counts the tokens of a greedy text that a model chooses, or has tied."""
    start = min(_PROMPT, ids_1T.shape[1] - 1)
    chosen_T, logits_TV = ids_1T[0, start:], logits_1TV[0, start - 1 : -1]
    behind_T = logits_TV.max(axis=-1) - logits_TV[np.arange(len(chosen_T)), chosen_T]
    return int((behind_T <= 2 * allowed).sum())


def token_rows(size: int, length: int, padding: int | None = None) -> np.ndarray:
    """Random token ids (1, T), none of them the padding's."""
    ids = np.random.default_rng(0).integers(0, size, (1, length)).astype("int32")
    ids[ids == padding] = size - 1 if padding != size - 1 else 0
    return ids


def image_rows(shape: Sequence[int]) -> np.ndarray:
    """One random image (1, height, width, channels)."""
    drawn = np.random.default_rng(0).normal(size=(1, *shape))
    return drawn.astype("float32")


def keras_outputs(model: Any) -> Outputs:
    """What a KerasHub task or backbone of text, or of images, computes.

    Of an encoder: the outputs at each token.
    """

    def outputs(row: np.ndarray) -> np.ndarray:
        inputs: Any = row
        if isinstance(model.input, dict):
            named = {"segment_ids": np.zeros_like(row), "images": row}
            names = [name for name in model.input if name not in named]
            inputs = text_inputs(names, row) if names else {}
            inputs |= {n: named[n] for n in model.input if n in named}
        # Not `predict`, which in KerasHub's tasks would take the ids for text.
        found = model(inputs, training=False)
        if isinstance(found, dict):
            found = found["sequence_output"]
        return keras.ops.convert_to_numpy(keras.ops.cast(found, "float32"))

    return outputs


def check_same_function(
    model: keras.layers.Layer, copy: keras.layers.Layer, size: int = 8
) -> None:
    """Compares a model with its copy on an example; warns if there is none.

    `size` is that of open axes. Refuses outputs that differ by more than the dtype
    explains; those that are random are not compared.
    """
    for old, new in zip(called_parts(model), called_parts(copy), strict=True):
        inputs = example_arrays(old, size)
        outputs = functools.partial(outputs_of, inputs=inputs)
        try:
            if inputs is None:
                raise ArgumentError("the shapes or types of its inputs are not known")
            expected = outputs(old)
        except Exception as error:  # it may be called on something else
            warn_user(
                f"The copy of '{old.name}' was not compared with it: "
                f"{what_was_raised(error)}. Compare their outputs on your data."
            )
            continue
        try:
            check_same_outputs(old, new, outputs)
        except ArgumentError:
            same = functools.partial(np.array_equal, equal_nan=True)
            if all(map(same, expected, outputs(old))):
                raise


def check_same_outputs(
    model: keras.layers.Layer,
    copy: keras.layers.Layer,
    outputs: Callable[[keras.layers.Layer], list[np.ndarray]],
) -> None:
    """Refuses a copy whose outputs differ by more than the dtype explains."""
    tolerance, tiny = tolerance_of(model), float(np.finfo("float32").tiny)
    try:
        for ours, theirs in zip(outputs(model), outputs(copy), strict=True):
            pair = Expected([(theirs, ours)], False)
            compare(pair, np.asarray, tolerance, ArgumentError, tiny)
    except ArgumentError as error:
        raise ArgumentError(
            f"The copy of {type(model).__name__} '{model.name}' is wrong. {error} Its "
            "config does not describe it fully, its weights are not finite, or its "
            "code computes with its width or uses layers that it does not hold."
        ) from None


def tolerance_of(model: keras.layers.Layer) -> float:
    """Returns how much outputs may differ, as a share of the largest."""
    dtypes = {layer.compute_dtype for layer in walk(model)}
    return max(_COPY_TOLERANCES.get(dtype, _HALF_TOLERANCE) for dtype in dtypes)


def outputs_of(
    model: keras.layers.Layer,
    inputs: Any,
    state: Iterable[tuple[keras.Variable, Any]] = (),
    training: bool = False,
) -> list[np.ndarray]:
    """Computes all outputs of a model, and what it adds to the loss, in float32.

    `state` are values to use in place of the variables' own, which do not change.
    """
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(computing_in_float32(model))
        scopes.enter_context(float32_products())
        scope = scopes.enter_context(keras.StatelessScope(state, collect_losses=True))
        outputs = keras.tree.flatten(model(inputs, training=training))
        outputs.append(keras.ops.convert_to_tensor(sum(scope.losses, 0.0)))
    return [keras.ops.convert_to_numpy(made).astype("float64") for made in outputs]


def example_arrays(model: keras.layers.Layer, size: int) -> Any:
    """Makes arrays that a model can be called on, or None if these are not known.

    Floats are from 0 to 2, since they may be tokens. Integers are tokens of the
    smallest Embedding that they reach, else ones. The end of the last sample is zeros,
    as padding. `size` is the length of an axis that the model leaves open.
    """
    try:
        with open_sizes(size):
            arguments, named = example_of(model)
    except ValueError:
        return None
    given = keras.tree.flatten(arguments)
    if named or any(tensor.dtype == "string" for tensor in given):
        return None
    rng, made = np.random.default_rng(0), []
    for place, tensor in enumerate(given):
        tokens = _tokens(model, place)
        if keras.backend.is_float_dtype(tensor.dtype):
            array = 2 * rng.random(tensor.shape, "float32")
        elif tokens:
            array = rng.integers(min(1, tokens - 1), tokens, tensor.shape)
        else:
            array = np.ones(tensor.shape)
        if array.ndim > 1:
            array[-1, max(1, 3 * array.shape[1] // 4) :] = 0
        made.append(array.astype(tensor.dtype))
    return keras.tree.pack_sequence_as(arguments[0], made)


def _tokens(layer: Any, place: int) -> int:
    """Returns the fewest rows in which an input is looked up; 0: in no Embedding."""
    graph = graph_of(layer)
    if graph is not None:
        tensor = graph.inputs[place]
        inner = [
            (operation, at)
            for operation, given, _ in calls_in(graph)
            for at, other in enumerate(given)
            if other is tensor
        ]
        return min(filter(None, (_tokens(*each) for each in inner)), default=0)
    parts = walk(layer) if isinstance(layer, keras.layers.Layer) else []
    embeddings = [part for part in parts if isinstance(part, keras.layers.Embedding)]
    return min((part.input_dim for part in embeddings), default=0)


def first_difference(
    ours: Callable[[str], Any], theirs: Callable[[str], Any], texts: Iterable[str]
) -> str:
    """Where one tokenizer makes other ids of a text than another, or ""."""
    for text in texts:
        received, expected = (np.asarray(f(text)).tolist() for f in (ours, theirs))
        if received != expected:
            pairs = enumerate(zip(received, expected, strict=False))
            shorter = min(len(received), len(expected))
            n = next((n for n, (a, b) in pairs if a != b), shorter)
            return (
                f"{text[:60]!r} becomes {received[n : n + 8]}, not "
                f"{expected[n : n + 8]}, from token {n} on"
            )
    return ""
