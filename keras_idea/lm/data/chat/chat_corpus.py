"""Conversations as rows of tokens in a cache, with the weight of each in the loss."""

import dataclasses
from collections.abc import Iterator

from keras_idea.lm.data.chat.rows import decoded
from keras_idea.lm.data.tokens.cached_corpus import CachedCorpus
from keras_idea.lm.data.tokens.interfaces import ALL, Batch, BatchShard


@dataclasses.dataclass(frozen=True)
class ChatCorpus(CachedCorpus):
    """Holds the rows of conversations, as `CachedCorpus` holds windows of a text.

    Its batches have a third array: the weight of each predicted token in the loss.

    Args:
        counted_tokens: int. Training tokens that the loss counts.
        counted_bytes: int. The bytes of text that they stand for.
    """

    counted_tokens: int = 0
    counted_bytes: int = 0

    @property
    def counted(self) -> float:
        """float, the share of the training tokens that the loss counts."""
        return self.counted_tokens / (len(self.train) - 1)

    def train_bytes_per_token(self) -> float:
        """Returns the mean bytes per training token that the loss counts."""
        return self.counted_bytes / self.counted_tokens

    def batch(self, step: int, *, seed: int, batch_size: int, length: int) -> Batch:
        """Returns the batch of a step, and its weights."""
        pair = super().batch(step, seed=seed, batch_size=batch_size, length=length)
        return decoded(pair)

    def batches(
        self,
        *,
        seed: int,
        batch_size: int,
        length: int,
        start_step: int = 0,
        share: BatchShard = ALL,
    ) -> Iterator[Batch]:
        """Yields batches as `CachedCorpus.batches`, and their weights."""
        pairs = super().batches(
            seed=seed,
            batch_size=batch_size,
            length=length,
            start_step=start_step,
            share=share,
        )
        return map(decoded, pairs)

    def validation_windows(self, *, length: int, limit: int | None = None) -> Batch:
        """Returns held-out rows, and their weights."""
        return decoded(super().validation_windows(length=length, limit=limit))
