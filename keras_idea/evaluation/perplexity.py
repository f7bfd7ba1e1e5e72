"""Perplexity and bits per byte over a corpus of any length."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from keras_idea.errors import EvaluationError
from keras_idea.evaluation.scorer import TokenScorer
from keras_idea.validation import check_int


@dataclasses.dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes:
        nats: float, the sum of -log p over all predicted tokens.
        tokens: int, how many were predicted: all but the first.
        bytes: float, of text that they stand for.
    """

    nats: float
    tokens: int
    bytes: float

    @property
    def per_token(self) -> float:
        """float, the perplexity of a token: exp(nats / tokens)."""
        return math.exp(self.nats / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """float, nats / bytes / ln 2: comparable between tokenizers."""
        return self.nats / self.bytes / math.log(2.0)


def perplexity(
    scorer: TokenScorer,
    tokens: np.ndarray,
    token_bytes: np.ndarray | None = None,
    stride: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Perplexity:
    r"""Predicts every token of a text but the first, each exactly once.

    A window of `scorer.max_length` tokens slides over the text; of each window only
    the tokens that no window before it has predicted count.

    $$\mathrm{ppl} = \exp\Bigl(-\frac{1}{N-1}\sum_{t=2}^{N}
    \log p(x_t \mid x_{s(t)}, \dots, x_{t-1})\Bigr)$$

    Args:
        scorer: `TokenScorer`.
        tokens: int array `(N,)`, N >= 2.
        token_bytes: float array `(vocabulary,)`, the bytes each id stands for; None:
            an id is a byte.
        stride: int in [1, max_length], tokens from one window to the next: the less,
            the more context a token has (at least `max_length - stride` tokens), and
            the longer it takes. Default: half of `max_length`.
        progress: function of the number of windows just done, or None.

    Returns:
        `Perplexity`.

    Raises:
        ValueError: for a text of fewer than two tokens, or a stride outside its
            range.

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
    scores = scorer.score(windows, progress)
    fresh = np.diff([0, *ends])
    nats = -sum(
        float(np.sum(log_probability[-count:], dtype="float64"))
        for (log_probability, _), count in zip(scores, fresh, strict=True)
    )
    predicted = tokens[1:]
    size = len(predicted) if token_bytes is None else token_bytes[predicted].sum()
    return Perplexity(nats, len(predicted), float(size))
