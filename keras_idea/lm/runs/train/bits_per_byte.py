"""From the loss of a run's text, in nats per token, to what is shown of it."""

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from keras_idea.lm.evaluation.perplexity import perplexity_of

Nats = TypeVar("Nats", float, np.ndarray)


@dataclasses.dataclass(frozen=True)
class Bits:
    """From a loss in nats per token to bits per byte of text, and to perplexity.

    Keras divides a weighted loss by the number of all tokens. So the bits per byte of
    responses are the loss, over the share of the tokens that it counts, over the bytes
    that one of those stands for.
    """

    # Bytes a token of the training text stands for on average.
    train: float = 1.0
    # Bytes a token stands for among those that a validation predicts: exactly, so that
    # its bits can be compared between tokenizers.
    validation: float = 1.0
    # Shares of the tokens that the losses count.
    train_counted: float = 1.0
    validation_counted: float = 1.0

    def of_training(self, nats: Nats) -> Nats:
        """Bits a byte of a training loss."""
        return nats / self.train_counted / self.train / math.log(2.0)

    def of_validation(self, nats: Nats) -> Nats:
        """Bits a byte of a validation loss."""
        return nats / self.validation_counted / self.validation / math.log(2.0)

    def perplexity(self, validation_bits: float) -> float:
        """Perplexity per token, of the bits per byte of a validation."""
        return perplexity_of(validation_bits * self.validation * math.log(2.0))


def text_loss(logs: Mapping[str, float], prefix: str = "") -> float:
    """The loss of the text, in nats per token, without what a teacher adds to it.

    `prefix` is "val_" for the validation's.
    """
    return logs.get(f"{prefix}student_loss", logs[f"{prefix}loss"])
