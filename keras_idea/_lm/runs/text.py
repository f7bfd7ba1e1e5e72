"""The text of a run, opened as `[data]` says."""

import os
from collections.abc import Callable
from typing import Any

from keras_idea._lm.data.text import open_text
from keras_idea._lm.data.tokens import Tokens
from keras_idea._lm.data.vocabulary import Vocabulary
from keras_idea._lm.runs.config import RunConfig


def tokens_of(
    config: RunConfig, vocabulary: Vocabulary | Callable[[str], Vocabulary]
) -> Tokens:
    """Opens the run's text in a vocabulary, or one that is made of a sample."""
    data, length = config.data, config.model.sequence_length
    text = open_text(
        **data.model_dump(exclude={"batch_size", "validation_batches", "template"}),
        template=data.template or config.model.preset,
        length=length,
        vocabulary=vocabulary,
    )
    text.check_length(length)
    return text


def batches(
    text: Tokens, config: RunConfig, start_step: int, index: int, count: int
) -> Any:
    """The training batches of one process of `count`, from a step on.

    A part of a step is a batch of its own.
    """
    return text.batches(
        length=config.model.sequence_length,
        batch_size=config.data.batch_size // config.parts,
        seed=config.run.seed,
        start_step=start_step * config.parts,
        index=index,
        count=count,
    )


def paths_read(config: RunConfig) -> list[str]:
    """The files and folders that a run reads, but for the standard library."""
    model, data = config.model, config.data
    given = [model.preset, config.distillation.teacher]
    paths = [*data.paths, *(data.validation_paths or ())]
    return [
        os.path.realpath(path)
        for path in [*given, *paths]
        if path is not None and path != "stdlib" and os.path.exists(path)
    ]
