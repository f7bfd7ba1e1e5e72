"""The rows of a text on which a checkpoint is measured, and those held out."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import needs_start
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.data.text import open_text
from keras_idea.lm.data.vocabulary import tokenizer_vocabulary
from keras_idea.lm.evaluation.perplexity import Perplexity, TokenScorer, perplexity
from keras_idea.validation import plural

#: The most rows on which perplexity is measured.
HELD_OUT_ROWS = 32
#: The most bytes of a text in which the tokens of a vocabulary are counted.
COUNTED_BYTES = 16_000_000
#: The most of such a text that is held out.
NOT_COUNTED = 0.1
# More than a token has in any text: what is read of a long text.
_BYTES_PER_TOKEN = 16


@dataclasses.dataclass(frozen=True)
class Rows:
    """Tokens `(rows, window)` of a text, and the token that follows each.

    Attributes:
        train: pair of int32 arrays, to measure importance on and to fit.
        held_out: pair of int32 arrays, to judge by.
        token_bytes: float array `(vocabulary,)`, bytes of text of each id.
        description: str, where they come from.
        start_id: int or None, what each row begins with.
        counted: int array, where the vocabulary is cut: all tokens of the text that is
            not held out.
        text: str, where it is cut: the held-out text that both models are judged by,
            each in its own tokens. "": they are judged by `held_out`.
    """

    train: tuple[np.ndarray, ...]
    held_out: tuple[np.ndarray, ...]
    token_bytes: np.ndarray
    description: str
    start_id: int | None
    counted: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, int))
    text: str = ""

    def __str__(self) -> str:
        """A line for the console."""
        used, held = (f"{part[0].size:,}" for part in (self.train, self.held_out))
        begins = "" if self.start_id is None else ", each begins with the start token"
        return (
            f"Text: {self.description}. Calibration: {used} tokens in "
            f"{plural(len(self.train[0]), 'row')} of {self.train[0].shape[1]}. Held "
            f"out: {held} tokens in {plural(len(self.held_out[0]), 'row')}{begins}."
            if not self.text
            else f"Text: {self.description}. The vocabulary is counted on "
            f"{self.counted.size:,} tokens, of which {len(np.unique(self.counted)):,} "
            f"are different; other axes are measured on {used}. Held out: "
            f"{len(self.text.encode()):,} bytes."
        )


def read_rows(
    text: str,
    preprocessor: Any,
    backbone: keras.Model,
    tokens: int,
    window: int,
    count: bool = False,
) -> Rows:
    """Reads rows that do not overlap, evenly spread over a text.

    Of a long text its beginning alone is read: more of it if the vocabulary is to be
    cut (`count`). A model that needs its start token in every sequence, as Gemma does,
    has it in place of each row's first token.

    Raises:
        ArgumentError: If the model has fewer positions, or `tokens` is below a row.
        TextError: If there is not a row to measure on, or none to hold out.
    """
    positions = getattr(backbone, "max_sequence_length", None) or window
    if not window <= min(positions, tokens):
        raise ArgumentError(
            f"`--window` must be at most --tokens ({tokens:,}) and the model's "
            f"positions ({positions:,}). Received: {window:,}. Lower `--window`."
        )
    held_out = HELD_OUT_ROWS * window
    most = _BYTES_PER_TOKEN * (tokens + held_out)
    fraction = held_out / (tokens + held_out)
    if count:
        most, fraction = max(most, COUNTED_BYTES), min(fraction, NOT_COUNTED)
    tokenizer = preprocessor.tokenizer
    start_id = tokenizer.start_token_id if needs_start(type(backbone)) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the begin of a text is enough
        read = open_text(
            paths=text,
            vocabulary=tokenizer_vocabulary(tokenizer),
            validation_fraction=fraction,
            max_megabytes=most / 1e6,
        )
    corpus = dataclasses.replace(read, start_id=start_id, start_every=1)
    corpus.check_length(window)
    to_measure = dataclasses.replace(corpus, held_out=corpus.train)
    rows = Rows(
        to_measure.held_out_windows(window, tokens // window),
        corpus.held_out_windows(window, HELD_OUT_ROWS),
        corpus.vocabulary.token_bytes,
        corpus.description,
        start_id,
    )
    if not count:
        return rows
    judged = corpus.held_out[:held_out]
    ends = judged == corpus.vocabulary.end_id
    held_out_text = corpus.vocabulary.decode(judged[~ends])
    return dataclasses.replace(rows, counted=corpus.train, text=held_out_text)


def check_enough(rows: Rows, units: int) -> None:
    """Refuses, before a model is loaded, too few tokens to fit a kernel on.

    `units`: what the widest kernel keeps. Every fourth row is held out to choose the
    ridge.
    """
    count, window = rows.train[0].shape
    fitted = count - count // 4
    if count < 4 or fitted * window < units:
        needed = max(4, math.ceil(units / window / 0.75) + 1) * window
        raise ArgumentError(
            f"`--refit` keeps {units:,} neurons in an FFN, and fits them on three "
            f"quarters of the calibration tokens. Received: {count * window:,} tokens "
            f"in {plural(count, 'row')}. Give {needed:,} tokens or more: raise "
            "`--tokens`, give more text, or lower `--window`."
        )


def judge(model: Any, rows: Rows, advance: Callable[[int, int], object]) -> Perplexity:
    """Measures how well a model predicts what is held out.

    `advance` takes the windows just done, and all there are.
    """
    x, y = rows.held_out
    scorer = TokenScorer(model, x.shape[1], lambda ids: token_inputs(model, ids))
    if rows.text:
        tokenizer = model.preprocessor.tokenizer
        start_id = None if rows.start_id is None else tokenizer.start_token_id
        own = tokenizer_vocabulary(tokenizer)
        ids, sizes = own.encode(rows.text), own.token_bytes
        count = -(-(len(ids) - 1) // x.shape[1])
        heard = (x.shape[1], lambda done: advance(done, count), start_id)
        return perplexity(scorer, ids, sizes, *heard)
    windows = np.concatenate([x, y[:, -1:]], axis=1)
    scores = scorer.score(list(windows), lambda done: advance(done, len(x)))
    nats = -sum(float(np.sum(row, dtype="float64")) for row in scores)
    size = float(rows.token_bytes[y].sum())
    return Perplexity(nats, y.size, size, x.shape[1], x.shape[1], rows.start_id)
