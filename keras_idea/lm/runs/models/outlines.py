"""The models of a run from shapes alone: no text is read, nothing is allocated."""

import dataclasses
from collections.abc import Callable

import keras

from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.lm.data.make_tokenizer import DEFAULT_VOCABULARY_SIZE
from keras_idea.lm.data.vocabulary import byte_vocabulary
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.models.build import outline_of
from keras_idea.lm.runs.models.compiling import rematerialize_blocks
from keras_idea.lm.runs.models.hub_source import (
    source_of_family,
    source_of_preset,
)


@dataclasses.dataclass(frozen=True)
class Outlines:
    """The models of a run, of any sizes, whose variables have no values."""

    make: Callable[[Sizes], keras.Model]  # not compiled
    at_start: Sizes  # of the wide model
    vocabulary_size: int  # tokens that the models know


def outlines(config: RunConfig, vocabulary_size: int | None = None) -> Outlines:
    """The `Outlines` of a run's models.

    `vocabulary_size` is that of a family's tokenizer; None: as the run asks for (a
    trained one has fewer tokens if the text has not as many).

    Raises:
        ConfigError: if keras_hub is missing, or the preset cannot be pruned.
    """
    shape = config.model
    if not shape.uses_keras_hub:
        make_bare = outline_of(config)
        return Outlines(
            make_bare,
            shape.sizes_at_start,
            byte_vocabulary(config.corpus.given).vocabulary_size,
        )
    if shape.hub is not None:
        size = vocabulary_size or _asked(shape, shape.hub)
        source = source_of_family(shape, shape.hub, size, config.run.dtype)
    else:
        source = source_of_preset(shape, config.run.dtype)

    def make(sizes: Sizes) -> keras.Model:
        made = source.outline(sizes)
        if config.run.rematerialize:
            rematerialize_blocks(made)
        return made

    return Outlines(make, source.at_start, source.arguments["vocabulary_size"])


def _asked(shape: ModelConfig, family: str) -> int:
    """Tokens of the tokenizer that is asked for."""
    if shape.tokenizer == "bytes":
        return HUB_FAMILIES[family].from_nothing.smallest_vocabulary
    return shape.vocabulary_size or DEFAULT_VOCABULARY_SIZE
