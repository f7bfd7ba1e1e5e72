"""Two models compared by what they compute: the only comparison of files with models.

Shapes: B batch, T tokens, P prompt tokens, V vocabulary (of an encoder: its width).
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np

from keras_idea.errors import ArgumentError, ExportFailed
from keras_idea.hub.inputs import text_inputs

_PROMPT, _NEW = 8, 16
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
Outputs: TypeAlias = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Match:
    """How well two models agree.

    Attributes:
        difference: float, the largest between their outputs.
        allowed: float, the largest that passes.
        largest: float, the largest output.
        greedy: int, greedy tokens that are equal, or tied; 0: no language model.
    """

    difference: float
    allowed: float
    largest: float
    greedy: int = 0

    def __str__(self) -> str:
        """One line for the user."""
        greedy = f", {self.greedy} greedy tokens equal" if self.greedy else ""
        return (
            f"outputs within {self.difference:.1e} of {self.largest:.3g} (allowed "
            f"{self.allowed:.1e}){greedy}"
        )


def compare(
    expected: Outputs,
    received: Outputs,
    rows: Sequence[np.ndarray],
    tolerance: float,
    causal: bool = True,
    error: type[Exception] = ExportFailed,
) -> Match:
    """Compares two models on rows of inputs, and on a greedy text of the first.

    Args:
        expected: function, the outputs of the model that is right.
        received: function, the outputs of the other.
        rows: list of arrays, token ids (B, T) or images.
        tolerance: float, the largest difference for outputs of at most 1; it grows
            with the largest output.
        causal: bool, whether the outputs choose the next token.
        error: class of the error to raise.

    Raises:
        ExportFailed, or `error`: if outputs have another shape, differ by more, or
            are not finite.
    """
    rows = list(rows)
    if causal:
        rows.append(_greedy_text(expected, rows[-1][:1]))
    pairs = [(expected(row), received(row)) for row in rows]
    for a, b in pairs:
        if a.shape != b.shape:
            raise error(f"Outputs of shape {b.shape} were computed, not {a.shape}.")
    largest = max(float(np.abs(a).max()) for a, _ in pairs)
    allowed = tolerance * max(1.0, largest)
    differences = [float(np.abs(a - b).max()) for a, b in pairs]
    difference = float(np.max(differences))  # unlike `max`, NaN if one is NaN
    # Written so that NaN fails.
    if not (difference <= allowed and np.isfinite(difference)):
        raise error(
            f"It computes other outputs: they differ by {difference:.2g} of "
            f"{largest:.3g}, allowed are {allowed:.1e}."
        )
    greedy = _greedy_equal(*pairs[-1], rows[-1], allowed) if causal else 0
    return Match(difference, allowed, largest, greedy)


def _greedy_text(outputs: Outputs, ids_1T: np.ndarray) -> np.ndarray:
    """The row's first tokens, continued by a model's choices."""
    length = ids_1T.shape[1]
    ids_1T = ids_1T.copy()
    for place in range(min(_PROMPT, length - 1), min(_PROMPT + _NEW, length)):
        # Always of one length, so that nothing is compiled twice.
        ids_1T[0, place] = outputs(ids_1T)[0, place - 1].argmax()
    return ids_1T[:, : _PROMPT + _NEW]


def _greedy_equal(
    a_1TV: np.ndarray, b_1TV: np.ndarray, ids_1T: np.ndarray, allowed: float
) -> int:
    """Counts the tokens of a greedy text that the other model chooses, or has tied."""
    start = min(_PROMPT, ids_1T.shape[1] - 1)
    chosen_T, logits_TV = ids_1T[0, start:], b_1TV[0, start - 1 : -1]
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


def takes_more_than_text(model: Any) -> str:
    """The first input of a model that does not follow from token ids, or ""."""
    names = model.input if isinstance(model.input, dict) else ()
    try:
        text_inputs([n for n in names if n != "segment_ids"], np.zeros((1, 1), "int32"))
    except ArgumentError as error:
        return str(error)
    return ""


def first_difference(
    ours: Callable[[str], Any], theirs: Callable[[str], Any], texts: Sequence[str]
) -> str:
    """Where one tokenizer makes other ids of a text than another, or ""."""
    return next(_differences(ours, theirs, texts), "")


def _differences(
    ours: Callable[[str], Any], theirs: Callable[[str], Any], texts: Sequence[str]
) -> Iterator[str]:
    for text in texts:
        received, expected = (np.asarray(f(text)).tolist() for f in (ours, theirs))
        if received != expected:
            pairs = enumerate(zip(received, expected, strict=False))
            shorter = min(len(received), len(expected))
            n = next((n for n, (a, b) in pairs if a != b), shorter)
            yield (
                f"{text[:60]!r} becomes {received[n : n + 8]}, not "
                f"{expected[n : n + 8]}, from token {n} on"
            )
