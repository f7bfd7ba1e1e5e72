"""The models of a run of KerasHub's: from nothing, or from a preset."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import HUB_FAMILIES, needs_start
from keras_idea.hub.kept import save_preset
from keras_idea.hub.loading import preprocessor_of
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from keras_idea.lm.data.tokens import START_EVERY, Tokens
from keras_idea.lm.data.vocabulary import Vocabulary, tokenizer_vocabulary
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.model_table import ModelConfig
from keras_idea.lm.runs.models.build import RunModels
from keras_idea.lm.runs.models.compiling import compiled, rematerialize_blocks
from keras_idea.lm.runs.models.hub_source import (
    keras_hub,
    loading,
    source_of_family,
    source_of_preset,
)
from keras_idea.lm.runs.models.narrow_sizes import narrow_sizes


def hub_models(config: RunConfig, text: Callable[..., Tokens]) -> RunModels:
    """The models of a run with `model.hub` or `model.preset`.

    They train without a preprocessor, on tokens; the saved one has it.

    Raises:
        ConfigError: if keras_hub is missing, the preset cannot be loaded or pruned,
            or the tokenizer cannot be trained.
    """
    shape, dtype = config.model, config.run.dtype
    parts = config.distribution.size[1]
    if shape.hub is not None:
        preprocessor, corpus = _of_family(shape, shape.hub, text)
        size = preprocessor.tokenizer.vocabulary_size()
        source = source_of_family(shape, shape.hub, size, dtype)
        preprocessor.sequence_length = shape.sequence_length
    else:
        source = source_of_preset(shape, dtype)
        with loading(shape.preset):
            preprocessor = preprocessor_of(str(shape.preset))
            if preprocessor is None:
                raise ArgumentError("It has no tokenizer.")
        corpus = text(vocabulary=tokenizer_vocabulary(preprocessor.tokenizer))

    def ready(model: keras.Model, pruned: bool = True) -> keras.Model:
        if config.run.rematerialize:
            rematerialize_blocks(model)
        return compiled(config, model, pruned)

    def save(narrow: keras.Model, path: pathlib.Path) -> None:
        # Around the same backbone: a preprocessor that is not used yet would slow
        # down every `predict_on_batch` of the model it is attached to.
        task = source.task(backbone=narrow.backbone, preprocessor=preprocessor)
        save_preset(task, path)

    # Of a released Gemma every sequence begins so, of others some; a chat template has
    # its own begin.
    start_id = preprocessor.tokenizer.start_token_id
    each = bool(shape.preset) and needs_start(source.backbone)
    each = each and not config.chat.given
    every = 1 if each else START_EVERY

    return RunModels(
        corpus=dataclasses.replace(corpus, start_id=start_id, start_every=every),
        vocabulary=corpus.vocabulary,
        at_start=source.at_start,
        at_end=narrow_sizes(shape, source.at_start, source.outline, parts),
        wide=lambda: ready(source.wide()),
        plain=lambda sizes: ready(source.stock(sizes), False),
        save=save,
        saved_as="preset",
        start_id=start_id if each else None,
    )


def _of_family(
    shape: ModelConfig, family: str, text: Callable[..., Tokens]
) -> tuple[Any, Tokens]:
    """A preprocessor whose tokenizer is made for the text, and the text in it."""
    hub, made = keras_hub(), []

    def vocabulary(sample: str) -> Vocabulary:
        made.append(
            make_tokenizer(family, shape.tokenizer, sample, shape.vocabulary_size)
        )
        return tokenizer_vocabulary(made[0])

    corpus = text(vocabulary=vocabulary)
    prefix = HUB_FAMILIES[family].prefix
    return getattr(hub.models, f"{prefix}CausalLMPreprocessor")(*made), corpus
