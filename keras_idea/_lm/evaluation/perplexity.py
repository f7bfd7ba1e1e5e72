"""Log-probabilities of given tokens, and the perplexity of a text.

Shapes: B sequences, L tokens, V vocabulary.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea._typing import Tensor
from keras_idea._validation import check_int, plural
from keras_idea.errors import ArgumentError

# The shortest length; each next one is twice as long.
_SHORTEST = 32
# At most of a batch: tokens, and numbers among the logits.
_TOKENS, _LOGITS = 8192, 2**27
_Inputs: TypeAlias = Callable[[Tensor], Tensor | dict[str, Tensor]]


class TokenScorer:
    """Scores the tokens of sequences with a causal model.

    Sequences are padded to one of a few lengths (32, 64, ... and `max_length`), so a
    compiling backend compiles few programs. The scores of a causal model do not change.

    Args:
        model: keras.Model. Maps int32 ids `(B, L)` to logits `(B, L, V)`.
        max_length: int >= 1. Tokens that the model sees at once.
        inputs: function or None. Takes ids `(B, L)` and returns the model's inputs.
            None passes the ids. Defaults to None.
        batch_tokens: int >= 1 or None. The most tokens per batch. Defaults to None:
            8192, or fewer, so that logits take 0.5 GB or less in float32.

    Example:
    >>> scorer = TokenScorer(model, max_length=16)
    >>> [log_probabilities] = scorer.score([[10, 11, 12]])
    >>> log_probabilities.shape
    (2,)
    """

    def __init__(
        self,
        model: keras.Model,
        max_length: int,
        inputs: _Inputs | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        self.max_length = check_int("max_length", max_length, minimum=1)
        if batch_tokens is None:
            batch_tokens = most_tokens(model)
        self._batch_tokens = check_int("batch_tokens", batch_tokens, minimum=1)
        self._scores = _Scores(model, inputs or (lambda ids: ids))

    def score(
        self,
        sequences: Sequence[Sequence[int] | np.ndarray],
        verbose: bool = False,
    ) -> list[np.ndarray]:
        """Scores each token of each sequence except the first.

        Args:
            sequences: list of int sequences. Each has 2 to `max_length + 1` tokens.
            verbose: bool. Shows a progress bar. Defaults to False.

        Returns:
            List of float32 arrays `(tokens - 1,)`: natural logarithms.

        Raises:
            ArgumentError: If a sequence is too short or too long.
        """
        places: dict[int, list[int]] = {}  # by padded length
        for i, sequence in enumerate(sequences):
            if not 2 <= len(sequence) <= self.max_length + 1:
                raise ArgumentError(
                    f"Sequences must have 2 to {self.max_length + 1} tokens. Received: "
                    f"{plural(len(sequence), 'token')} in sequence {i}. Cut it, or use "
                    "`perplexity`."
                )
            length = _SHORTEST
            while length < len(sequence) - 1:
                length *= 2
            places.setdefault(min(length, self.max_length), []).append(i)
        results: dict[int, np.ndarray] = {}
        bar = keras.utils.Progbar(
            len(sequences), unit_name="window", verbose=int(verbose)
        )
        for length in sorted(places):
            size = max(1, self._batch_tokens // length)
            for start in range(0, len(places[length]), size):
                batch = places[length][start : start + size]
                padded = np.zeros((size, length + 1), "int32")
                for row, place in enumerate(batch):
                    padded[row, : len(sequences[place])] = sequences[place]
                scored = np.asarray(self._scores.predict_on_batch(padded))
                for row, place in zip(scored, batch, strict=False):
                    results[place] = row[: len(sequences[place]) - 1]
                bar.add(len(batch))
        return [results[place] for place in range(len(sequences))]


def most_tokens(model: keras.Model) -> int:
    """Counts the tokens of a batch whose logits have `_LOGITS` numbers or fewer."""
    shape = getattr(model, "output_shape", None)
    vocabulary = shape[-1] if isinstance(shape, tuple) else None
    return min(_TOKENS, max(1, _LOGITS // (vocabulary or 1)))


class _Scores(keras.Model):
    """Maps ids `(B, L + 1)` to log-probabilities; logits stay on the device."""

    def __init__(self, model: keras.Model, inputs: _Inputs) -> None:
        super().__init__(name="token_scores")
        self._model, self._inputs = model, inputs

    def call(self, ids_BM: Tensor) -> Tensor:
        logits_BLV = self._model(self._inputs(ids_BM[:, :-1]), training=False)
        logits_BLV = ops.cast(logits_BLV, "float32")
        targets_BL1 = ops.expand_dims(ids_BM[:, 1:], -1)
        of_targets_BL1 = ops.take_along_axis(logits_BLV, targets_BL1, axis=-1)
        return ops.squeeze(of_targets_BL1, -1) - ops.logsumexp(logits_BLV, axis=-1)


def perplexity_of(nats: float) -> float:
    """exp(nats), of nats per token; infinite where no float holds it."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """Holds how well a model predicts a text.

    Attributes:
        nats: float. The sum of -log p over all predicted tokens.
        tokens: int. The number of predicted tokens: all but the first.
        bytes: float. The bytes of text of these tokens.
        window: int or None. The tokens that the model saw at once.
        stride: int or None. The tokens from one window to the next.
        start_id: int or None. The token that every window began with.
    """

    nats: float
    tokens: int
    bytes: float
    window: int | None = None
    stride: int | None = None
    start_id: int | None = None

    @property
    def per_token(self) -> float:
        """float, the perplexity per token: exp(nats / tokens)."""
        return perplexity_of(self.nats / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """float, nats / bytes / ln 2. It can be compared between tokenizers."""
        if not self.bytes:  # of special tokens alone
            return math.inf
        return self.nats / self.bytes / math.log(2.0)


def perplexity(
    scorer: TokenScorer,
    tokens: np.ndarray,
    token_bytes: np.ndarray | None = None,
    stride: int | None = None,
    start_id: int | None = None,
    verbose: bool = False,
) -> Perplexity:
    r"""Computes the perplexity of a text: predicts each token but the first once.

    A window slides over the text. The model reads `scorer.max_length` tokens at once
    and predicts the one after each. Tokens that an earlier window predicted do not
    count. The last window begins earlier than its turn, so that it is full.

    $$\mathrm{ppl} = \exp\Bigl(-\frac{1}{N-1}\sum_{t=2}^{N}
    \log p(x_t \mid x_{s(t)}, \dots, x_{t-1})\Bigr)$$

    Args:
        scorer: `TokenScorer`. The model.
        tokens: int array `(N,)`, N >= 2. The text.
        token_bytes: float array or None. The bytes per id. Defaults to None: 1 each.
        stride: int in [1, max_length] or None. Tokens from one window to the next. A
            smaller one gives more context. Defaults to None: half of `max_length`.
        start_id: int or None. Takes the place of a window's first token, for models
            that need it first in every sequence, as Gemma does.
        verbose: bool. Shows a progress bar. Defaults to False.

    Returns:
        `Perplexity`.

    Raises:
        ArgumentError: If the text has fewer than two tokens.

    Example:
    >>> found = perplexity(TokenScorer(model, 16), np.arange(100))
    >>> found.tokens, 4 < found.bits_per_byte < 16
    (99, True)
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise ArgumentError(
            f"`tokens` must be one row of two or more. Received: shape {tokens.shape}. "
            "Give more text."
        )
    length = scorer.max_length
    stride = max(1, length // 2) if stride is None else stride
    stride = check_int("stride", stride, minimum=1, maximum=length)
    # Window after window, the position up to which tokens are predicted.
    ends = [min(length, len(tokens) - 1)]
    while ends[-1] < len(tokens) - 1:
        ends.append(min(ends[-1] + stride, len(tokens) - 1))
    windows = [tokens[max(0, end - length) : end + 1] for end in ends]
    if start_id is not None:
        windows = [np.append(start_id, window[1:]) for window in windows]
    scores = scorer.score(windows, verbose)
    fresh = np.diff([0, *ends])
    nats = -sum(
        float(np.sum(log_probability[-count:], dtype="float64"))
        for log_probability, count in zip(scores, fresh, strict=True)
    )
    predicted = tokens[1:]
    size = len(predicted) if token_bytes is None else token_bytes[predicted].sum()
    return Perplexity(nats, len(predicted), float(size), length, stride, start_id)
