"""Log-probabilities of given tokens, in few compiled shapes.

Shapes: B sequences, L tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import keras
import numpy as np
from keras import ops

from keras_idea.errors import EvaluationError
from keras_idea.typing import Tensor
from keras_idea.validation import check_int, plural

#: The shortest bucket; each next one is twice as long.
_SHORTEST = 32
# At most of a batch: tokens, and numbers among the logits.
_TOKENS, _LOGITS = 8192, 2**27
_Sequence: TypeAlias = Sequence[int] | np.ndarray
# Log-probabilities, and whether each token was the likeliest.
_Score: TypeAlias = tuple[np.ndarray, np.ndarray]
# What makes of ids `(B, L)` what a model takes.
_Inputs: TypeAlias = Callable[[Tensor], Tensor | dict[str, Tensor]]


class TokenScorer:
    """Scores the tokens of sequences with a causal model.

    Sequences are padded on the right to one of a few lengths (32, 64, ... and
    `max_length`). Each length has a fixed batch size, so a compiling backend compiles
    one program per length. Padding changes no score, because the model is causal. The
    logits `(B, L, V)` stay on the device.

    Args:
        model: keras.Model. Maps int32 ids `(B, L)` to logits `(B, L, V)`.
        max_length: int >= 1. Tokens that the model sees at once.
        inputs: function or None. Takes ids `(B, L)` and returns the model's inputs.
            None passes the ids. Defaults to None.
        batch_tokens: int >= 1 or None. The most tokens per batch (except for a single
            longer sequence). Defaults to None: 8192, fewer with a large vocabulary, so
            that the logits of a batch take 0.5 GB in float32 or less.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> scorer = TokenScorer(model, max_length=16)
    >>> [(log_probabilities, greedy)] = scorer.score([[10, 11, 12]])
    >>> log_probabilities.shape, greedy.dtype
    ((2,), dtype('bool'))
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
        sequences: Sequence[_Sequence],
        progress: Callable[[int], object] | None = None,
    ) -> list[_Score]:
        """Scores each token of each sequence except the first.

        Args:
            sequences: list of int sequences. Each has 2 to `max_length + 1` tokens.
            progress: function or None. Takes the number just done. Defaults to None.

        Returns:
            List of pairs of arrays `(tokens - 1,)`, one per sequence: the natural
            logarithm of each next token's probability (float32), and whether it was the
            most likely (bool).

        Raises:
            ValueError: If a sequence is too short or too long.
        """
        for i, sequence in enumerate(sequences):
            if not 2 <= len(sequence) <= self.max_length + 1:
                raise EvaluationError(
                    f"Sequences must have 2 to max_length + 1 = {self.max_length + 1} "
                    f"tokens. Received: {plural(len(sequence), 'token')} in sequence "
                    f"{i}. Cut it, or score it in windows (see `perplexity`)."
                )
        results: dict[int, _Score] = {}
        for length, places in self._buckets(sequences).items():
            size = max(1, self._batch_tokens // length)
            for start in range(0, len(places), size):
                batch = places[start : start + size]
                scores = self._score_batch(
                    [sequences[place] for place in batch], (size, length)
                )
                results.update(zip(batch, scores, strict=True))
                if progress is not None:
                    progress(len(batch))
        return [results[place] for place in range(len(sequences))]

    def _padded(self, tokens: int) -> int:
        """The length to which so many tokens are padded."""
        length = _SHORTEST
        while length < tokens:
            length *= 2
        return min(length, self.max_length)

    def _buckets(self, sequences: Sequence[_Sequence]) -> dict[int, list[int]]:
        """Dict of padded length to the places of its sequences."""
        buckets: dict[int, list[int]] = {}
        for place, sequence in enumerate(sequences):
            length = self._padded(len(sequence) - 1)
            buckets.setdefault(length, []).append(place)
        return dict(sorted(buckets.items()))

    def _score_batch(
        self, sequences: Sequence[_Sequence], shape: tuple[int, int]
    ) -> list[_Score]:
        ids, targets = np.zeros(shape, "int32"), np.zeros(shape, "int32")
        for row, sequence in enumerate(sequences):
            tokens = np.asarray(sequence, "int32")
            ids[row, : len(tokens) - 1] = tokens[:-1]
            targets[row, : len(tokens) - 1] = tokens[1:]
        scored = self._scores.predict_on_batch({"ids": ids, "targets": targets})
        log_probability, greedy = scored["log_probability"], scored["greedy"]
        counts = [len(sequence) - 1 for sequence in sequences]
        return [
            (np.asarray(log_probability)[row, :count], np.asarray(greedy)[row, :count])
            for row, count in enumerate(counts)
        ]

    def next_tokens(self, sequences: Sequence[_Sequence]) -> list[int]:
        """Returns the most likely token after each sequence.

        Args:
            sequences: list of int sequences. Each has 1 to `max_length` tokens.

        Returns:
            List of int.
        """
        length = self._padded(max(len(sequence) for sequence in sequences))
        size = max(1, self._batch_tokens // length)
        found: list[int] = []
        for start in range(0, len(sequences), size):
            batch = sequences[start : start + size]
            ids = np.zeros((size, length), "int32")
            for row, sequence in enumerate(batch):
                ids[row, : len(sequence)] = sequence
            scored = self._scores.predict_on_batch({"ids": ids, "targets": ids})
            likeliest = np.asarray(scored["likeliest"])
            found += [int(likeliest[row, len(s) - 1]) for row, s in enumerate(batch)]
        return found


def most_tokens(model: keras.Model) -> int:
    """Tokens of a batch whose logits have `_LOGITS` numbers or fewer."""
    shape = getattr(model, "output_shape", None)
    vocabulary = shape[-1] if isinstance(shape, tuple) else None
    return min(_TOKENS, max(1, _LOGITS // (vocabulary or 1)))


class _Scores(keras.Model):
    """Ids and targets `(B, L)` to what is known of the targets."""

    def __init__(self, model: keras.Model, inputs: _Inputs) -> None:
        super().__init__(name="token_scores")
        self._model, self._inputs = model, inputs

    def call(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        logits_BLV = self._model(self._inputs(batch["ids"]), training=False)
        logits_BLV = ops.cast(logits_BLV, "float32")
        targets_BL = batch["targets"]
        of_targets_BL1 = ops.take_along_axis(
            logits_BLV, ops.expand_dims(targets_BL, -1), axis=-1
        )
        likeliest_BL = ops.cast(ops.argmax(logits_BLV, axis=-1), "int32")
        return {
            "log_probability": ops.squeeze(of_targets_BL1, -1)
            - ops.logsumexp(logits_BLV, axis=-1),
            "greedy": ops.equal(likeliest_BL, targets_BL),
            "likeliest": likeliest_BL,
        }
