"""The models of a run of KerasHub's: from nothing, or from a preset."""

import pathlib
from typing import Any

import keras

from keras_idea.errors import ArgumentError
from keras_idea.hub.families import HUB_FAMILIES, needs_start
from keras_idea.hub.kept import save_preset
from keras_idea.hub.loading import preprocessor_of
from keras_idea.lm.data.chat.chat_text import ChatText, RawText
from keras_idea.lm.data.text.make_tokenizer import make_tokenizer
from keras_idea.lm.data.text.vocabulary import tokenizer_vocabulary
from keras_idea.lm.data.tokens.interfaces import START_EVERY
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


def hub_models(config: RunConfig, text: RawText) -> RunModels:
    """The models of a run with `model.hub` or `model.preset`.

    They train without a preprocessor, on tokens; the saved one has it.

    Raises:
        ConfigError: if keras_hub is missing, the preset cannot be loaded or pruned,
            or the tokenizer cannot be trained.
    """
    shape, dtype = config.model, config.run.dtype
    parts = config.distribution.size[1]
    if shape.hub is not None:
        preprocessor = _preprocessor(shape, shape.hub, text)
        size = preprocessor.tokenizer.vocabulary_size()
        source = source_of_family(shape, shape.hub, size, dtype)
        preprocessor.sequence_length = shape.sequence_length
    else:
        source = source_of_preset(shape, dtype)
        with loading(shape.preset):
            preprocessor = preprocessor_of(str(shape.preset))
            if preprocessor is None:
                raise ArgumentError("It has no tokenizer.")
    vocabulary = tokenizer_vocabulary(preprocessor.tokenizer)

    if isinstance(text, ChatText):
        text = text.of_family(source.backbone.__name__.removesuffix("Backbone"))

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
    each = each and not isinstance(text, ChatText)

    return RunModels(
        corpus=text.tokenized(vocabulary, start_id, 1 if each else START_EVERY),
        vocabulary=vocabulary,
        at_start=source.at_start,
        at_end=narrow_sizes(shape, source.at_start, source.outline, parts),
        wide=lambda: ready(source.wide()),
        plain=lambda sizes: ready(source.stock(sizes), False),
        save=save,
        saved_as="preset",
        start_id=start_id if each else None,
    )


def _preprocessor(shape: ModelConfig, family: str, text: RawText) -> Any:
    hub = keras_hub()
    tokenizer = make_tokenizer(
        family, shape.tokenizer, text.sample(), shape.vocabulary_size
    )
    prefix = HUB_FAMILIES[family].prefix
    return getattr(hub.models, f"{prefix}CausalLMPreprocessor")(tokenizer)
