"""The models of a run from shapes alone: no text is read, nothing is allocated."""

import dataclasses
from collections.abc import Callable

import keras

from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.hub.make_tokenizer import DEFAULT_VOCABULARY_SIZE
from keras_idea.runs.config import RunConfig
from keras_idea.runs.models.blocks import rematerialized
from keras_idea.runs.models.build import outline_of, run_bytes
from keras_idea.runs.models.hub_source import source_of_family, source_of_preset


@dataclasses.dataclass(frozen=True)
class Outlines:
    """The models of a run, of any width, whose variables have no values.

    Attributes:
        make: function of a width that makes a model, not compiled.
        hidden_dim: int, neurons of each FFN at the start.
        vocabulary_size: int, tokens that the models know.
    """

    make: Callable[[int], keras.Model]
    hidden_dim: int
    vocabulary_size: int


def outlines(config: RunConfig, vocabulary_size: int | None = None) -> Outlines:
    """The `Outlines` of a run's models.

    Args:
        config: `RunConfig`.
        vocabulary_size: int or None, tokens of a family's tokenizer; None: as many as
            the run asks for (a trained one has fewer if the text has not as many).

    Returns:
        `Outlines`.

    Raises:
        ConfigError: if keras_hub is missing, or the preset cannot be pruned.
    """
    shape = config.model
    family = shape.hub
    if not shape.of_hub:
        make_bare = outline_of(config)
        return Outlines(make_bare, shape.hidden_dim, run_bytes(config).vocabulary_size)
    if family is not None:
        size = vocabulary_size or _asked(config, family)
        source = source_of_family(config, family, size)
    else:
        source = source_of_preset(config)

    def make(width: int) -> keras.Model:
        return rematerialized(config, source.outline(width))

    return Outlines(make, source.hidden_dim, source.arguments["vocabulary_size"])


def _asked(config: RunConfig, family: str) -> int:
    shape = config.model
    if shape.tokenizer == "bytes":
        return HUB_FAMILIES[family].from_nothing.smallest_vocabulary
    return shape.vocabulary_size or DEFAULT_VOCABULARY_SIZE
