"""Perplexity and bits per byte over a corpus of any length."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from keras_idea.errors import EvaluationError
from keras_idea.lm.evaluation.scorer import TokenScorer
from keras_idea.validation import check_int


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
        window: int or None. The tokens that the model saw at once. Defaults to None:
            unknown.
        stride: int or None. The tokens from one window to the next. Defaults to None:
            unknown.
        start_id: int or None. The token that every window began with. Defaults to None.
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
    progress: Callable[[int], object] | None = None,
    start_id: int | None = None,
) -> Perplexity:
    r"""Computes the perplexity of a text: predicts each token but the first once.

    A window slides over the text. The model reads `L = scorer.max_length` tokens of it
    at once and predicts the `L` tokens that follow each, so a window covers `L + 1`
    tokens of the text. Only tokens that no earlier window has predicted count: `L` in
    the first window, `stride` in each later one. The last window begins as much earlier
    as it needs to be full, so its tokens have more context. A loop of Hugging Face
    transformers that passes `L` ids as `labels` too predicts `L - 1` tokens per window.

    $$\mathrm{ppl} = \exp\Bigl(-\frac{1}{N-1}\sum_{t=2}^{N}
    \log p(x_t \mid x_{s(t)}, \dots, x_{t-1})\Bigr)$$

    Args:
        scorer: `TokenScorer`. The model.
        tokens: int array `(N,)`, N >= 2. The text.
        token_bytes: float array or None. The bytes per id. Defaults to None: 1 each.
        stride: int in [1, max_length] or None. Tokens from one window to the next. A
            smaller stride gives more context (after the first window, more than
            `max_length - stride` tokens) and takes longer. Defaults to None: half of
            `max_length`.
        progress: function or None. Takes the number of windows just done. Defaults to
            None.
        start_id: int or None. The start token, if the model needs it first in every
            sequence, as Gemma does. It takes the place of a window's first token.
            Defaults to None.

    Returns:
        `Perplexity`.

    Raises:
        ValueError: If the text has fewer than two tokens or `stride` is out of range.

    Example:
    >>> found = perplexity(TokenScorer(model, 16), np.arange(100))
    >>> found.tokens, 4 < found.bits_per_byte < 16
    (99, True)
    """
    tokens = np.asarray(tokens)
    if tokens.ndim != 1 or len(tokens) < 2:
        raise EvaluationError(
            "`tokens` must be one row of two tokens or more. Received: shape "
            f"{tokens.shape}. Give more text."
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
    scores = scorer.score(windows, progress)
    fresh = np.diff([0, *ends])
    nats = -sum(
        float(np.sum(log_probability[-count:], dtype="float64"))
        for (log_probability, _), count in zip(scores, fresh, strict=True)
    )
    predicted = tokens[1:]
    size = len(predicted) if token_bytes is None else token_bytes[predicted].sum()
    return Perplexity(nats, len(predicted), float(size), length, stride, start_id)
