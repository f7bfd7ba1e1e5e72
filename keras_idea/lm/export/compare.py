"""Two models compared by what they compute: logits, and tokens they choose.

Shapes: B batch, T tokens, P prompt tokens, V vocabulary.
"""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np

from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import greedy
from keras_idea.validation import plural

#: Greedy tokens compared after a prompt.
NUM_TOKENS = 16
_PROMPT, _LENGTH, _LONGEST_WINDOW = 8, 48, 1024
#: Tokens of the shortest sequence that a model can be compared on.
SHORTEST = _PROMPT + NUM_TOKENS


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, whatever library runs it, as far as an export is compared.

    Args:
        logits: function of int32 ids (B, T) that returns float logits (B, T, V).
        greedy: function of int32 ids (B, P) and a number of tokens that returns
            the ids, continued by that many.
    """

    logits: Callable
    greedy: Callable


@dataclasses.dataclass(frozen=True)
class Match:
    """How well two models agree.

    Args:
        difference: float, the largest between their logits.
        allowed: float, the largest that passes.
        tokens: int, greedy tokens that were equal.
        share: float, of the tokens, that of which `difference` is the largest.
    """

    difference: float
    allowed: float
    tokens: int
    share: float = 1.0

    def __str__(self) -> str:
        """One line for the user."""
        of = "" if self.share == 1 else f" of {self.share:.0%} of the tokens"
        return (
            f"loaded back: logits{of} within {self.difference:.1e} (allowed "
            f"{self.allowed:.0e}), {self.tokens} greedy tokens equal"
        )


def compare(
    expected: Subject,
    received: Subject,
    vocabulary_size: int,
    tolerance: float,
    length: int = _LENGTH,
    share: float = 1.0,
) -> Match:
    """Compares a model with its export, on random tokens and on a greedy continuation.

    Args:
        expected: `Subject`, the model that was exported.
        received: `Subject`, the export, loaded back.
        vocabulary_size: int, token ids.
        tolerance: float, the largest difference allowed between logits, for logits
            of at most 1; it grows with the largest logit.
        length: int, tokens of the random sequences.
        share: float, of the tokens, whose logits must differ by no more. Below 1 the
            greedy tokens may be others; they are counted.

    Raises:
        ExportFailed: if the logits are not finite, or differ by more, or another
            token is chosen where there was no tie; how far off.
    """
    rng = np.random.default_rng(0)
    ids_BT = rng.integers(0, vocabulary_size, (2, length)).astype("int32")
    a_BTV, b_BTV = (np.asarray(s.logits(ids_BT)) for s in (expected, received))
    if a_BTV.shape != b_BTV.shape:
        raise ExportFailed(
            f"The export computes logits of shape {b_BTV.shape}, the model "
            f"{a_BTV.shape}."
        )
    allowed = tolerance * max(1.0, float(np.abs(a_BTV).max()))
    apart_BT = np.abs(a_BTV - b_BTV).max(axis=-1)
    difference = float(np.quantile(apart_BT, share))
    # Written so that NaN fails.
    if not (difference <= allowed and np.isfinite(apart_BT).all()):
        raise ExportFailed(
            f"The export computes other logits than the model: they differ by "
            f"{difference:.3g}, allowed are {allowed:.1e}."
        )
    prompts = ids_BT[:, :_PROMPT]
    a_BT, b_BT = (
        np.asarray(s.greedy(prompts, NUM_TOKENS)) for s in (expected, received)
    )
    same = a_BT.shape == b_BT.shape
    if not same or (share == 1 and not _equal_or_tied(a_BT, b_BT, expected, allowed)):
        raise ExportFailed(
            f"The export chooses other tokens than the model: "
            f"{b_BT[:, _PROMPT:].tolist()} instead of {a_BT[:, _PROMPT:].tolist()}."
        )
    return Match(difference, allowed, int((a_BT == b_BT)[:, _PROMPT:].sum()), share)


def _equal_or_tied(
    a_BT: np.ndarray, b_BT: np.ndarray, expected: Subject, allowed: float
) -> bool:
    """bool, whether texts that differ do so first where two tokens were as likely."""
    for row in np.flatnonzero((a_BT != b_BT).any(axis=1)):
        first = int((a_BT[row] != b_BT[row]).argmax())
        logits_V = np.asarray(expected.logits(a_BT))[row, first - 1]
        margin = logits_V[a_BT[row, first]] - logits_V[b_BT[row, first]]
        if first < _PROMPT or not abs(margin) <= 2 * allowed:
            return False
    return True


def subject_of(logits: Callable, length: int = _LENGTH) -> Subject:
    """A `Subject` that continues texts by its causal logits, without a cache.

    It is given sequences of `length` tokens to continue them, if they fit: always as
    many, so that nothing is compiled twice.
    """

    def continued(prompts_BP: np.ndarray, num_tokens: int) -> np.ndarray:
        window = max(length, prompts_BP.shape[1] + num_tokens)
        return greedy(logits, prompts_BP, num_tokens, window)

    return Subject(logits, continued)


def model_subject(model: keras.Model) -> Subject:
    """A Keras model of token ids, KerasHub's or not, as a `Subject`."""

    def logits(ids_BT: np.ndarray) -> np.ndarray:
        # Not `predict`, which in KerasHub's models would tokenize.
        outputs = model(token_inputs(model, ids_BT), training=False)
        return keras.ops.convert_to_numpy(outputs).astype("float32")

    return subject_of(logits)


def probe_length(backbone: keras.Model) -> int:
    """Tokens that show what a sliding window cuts off, if it is not too wide.

    Raises:
        ExportRefused: if the model has not as many positions.
    """
    names = ("sliding_window", "sliding_window_size")
    windows = [getattr(backbone, name, None) or 0 for name in names]
    length = max(_LENGTH, *(w + 16 for w in windows if w <= _LONGEST_WINDOW))
    positions = getattr(backbone, "max_sequence_length", None) or length
    if positions < length:
        raise ExportRefused(
            f"{type(backbone).__name__} has {plural(positions, 'position')}, and an "
            f"export is compared on texts of {length} tokens. Train with "
            f"max_sequence_length={length} or more."
        )
    return length


# Indentation, digits, an apostrophe, other scripts: where tokenizers differ.
SAMPLES = (
    "the quick brown fox jumps",
    "def f(x):\n    if x > 1024:\n\n        return x + 10\n",
    "  It's 2024, naïve e\u0301 漢字 🙂\t",
)


def first_difference(
    encode: Callable[[str], object], other: Callable[[str], object]
) -> str:
    """Where the token ids of `other` differ from those of `encode`, or ""."""
    for text in SAMPLES:
        expected, received = (np.asarray(f(text)).tolist() for f in (encode, other))
        if expected != received:
            return f"{text!r} becomes {received}, not {expected}."
    return ""
