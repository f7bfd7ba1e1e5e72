"""The models of a run, wide and narrow: from nothing, or from a checkpoint."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import keras

from keras_idea._finding.explain import why_nothing
from keras_idea._finding.find import find_ffns, find_groups
from keras_idea._graph.configs import numbers_for
from keras_idea._keras.variables import without_parameters, without_values
from keras_idea._lm.data.make_tokenizer import (
    DEFAULT_VOCABULARY_SIZE,
    make_tokenizer,
)
from keras_idea._lm.data.tokens import START_EVERY, Tokens
from keras_idea._lm.data.vocabulary import Vocabulary, tokenizer_vocabulary
from keras_idea._lm.runs.compiling import compiled
from keras_idea._lm.runs.config import Model, RunConfig
from keras_idea._lm.runs.sizes import Sizes, narrow_sizes
from keras_idea._lm.runs.text import tokens_of
from keras_idea._validation import require
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES, needs_start
from keras_idea.hub.folder import task_class
from keras_idea.hub.kept import save_preset
from keras_idea.hub.loading import (
    check_language_model,
    check_not_quantized,
    load,
    outline,
    preprocessor_of,
)
from keras_idea.hub.rebuild import patch_get_config, with_numbers


@dataclasses.dataclass(frozen=True)
class Source:
    """Where the models of a run come from."""

    at_start: Sizes  # of the wide model
    vocabulary_size: int  # tokens that the models know
    wide: Callable[[], keras.Model]  # makes the wide model, not compiled
    stock: Callable[[Sizes], keras.Model]  # makes a model with fresh weights
    outline: Callable[[Sizes], keras.Model]  # the same, its variables without values
    backbone: type[keras.Model]
    task: type[keras.Model]
    positions: int | None = None  # the longest sequence that the models take


def source_of(config: RunConfig, vocabulary_size: int | None = None) -> Source:
    """The `Source` of a run; no weights are read."""
    shape = config.model
    if shape.preset is not None:
        found = _of_preset(config, shape.preset)
    else:
        found = _of_family(config, shape.hub, vocabulary_size)
    if found.positions is not None and shape.sequence_length > found.positions:
        raise ConfigError(
            "`model.sequence_length` must be at most the positions of the checkpoint, "
            f"{found.positions}. Received: {shape.sequence_length}. Lower it."
        )
    return found


def _of_family(config: RunConfig, family: str, vocabulary_size: int | None) -> Source:
    """A family of KerasHub's, from nothing."""
    hub, row, shape = keras_hub(), HUB_FAMILIES[family], config.model
    if vocabulary_size is None:
        vocabulary_size = shape.vocabulary_size or DEFAULT_VOCABULARY_SIZE
        if shape.tokenizer == "bytes":
            vocabulary_size = row.smallest_vocabulary
    arguments = {
        "vocabulary_size": vocabulary_size,
        "num_layers": shape.num_layers,
        "num_query_heads": shape.num_heads,
        "num_key_value_heads": shape.key_value_heads,
        "hidden_dim": shape.model_dim,
        "intermediate_dim": 2 * shape.hidden_dim,  # for Gemma it counts both matrices
        "dtype": config.run.dtype,
    }
    if row.needs_head_dim:
        arguments["head_dim"] = shape.model_dim // shape.num_heads
    backbone = getattr(hub.models, f"{row.prefix}Backbone")
    with without_values():
        first = backbone.from_config(arguments)
    task = getattr(hub.models, f"{row.prefix}CausalLM")
    return _of_hub(shape, task, first, shape.hidden_dim)


def _of_preset(config: RunConfig, preset: str) -> Source:
    """A checkpoint that KerasHub loads."""
    hub, dtype = keras_hub(), config.run.dtype
    check_not_quantized(preset)
    backbone: Any = outline(preset, dtype)
    check_language_model(preset, backbone)
    patch_get_config(backbone)
    if any(len(ffn.units_shape) > 1 for ffn in find_ffns(backbone)):
        raise ConfigError(
            "`model.preset`: a mixture of experts adds the loss of its router to that "
            "of the text. Prune it in Python, with `IdeaPruneCallback`."
        )
    task = task_class(hub.models.CausalLM, type(backbone))

    def wide() -> keras.Model:
        model: Any = load(preset, dtype)
        model.preprocessor = None  # it trains on tokens
        return model

    found = _of_hub(config.model, task, backbone)
    positions = getattr(backbone, "max_sequence_length", None)
    return dataclasses.replace(found, wide=wide, positions=positions)


def _of_hub(shape: Model, task: Any, first: Any, width: int | None = None) -> Source:
    """Stock models of a KerasHub class, of any sizes.

    `first` is a backbone of the class; `width`: neurons at the start; None: its own.
    """
    backbone, arguments = type(first), first.get_config()
    ffns, heads = find_ffns(first), list[Any]()
    start = Sizes(width or ffns[0].hidden_dim)
    if "kv_groups" in shape.pruned_kinds:
        heads = find_groups(first, ["kv_groups"])
        if not heads:
            raise ConfigError(
                f"No key/value heads can be pruned. {why_nothing(first, 'kv_groups')} "
                'Leave "kv_groups" out.'
            )
        start = Sizes(start.neurons, heads[0].hidden_dim)

    def make(sizes: Sizes) -> keras.Model:
        changes = numbers_for(first, ffns, sizes.neurons)
        if heads and sizes.kv_groups is not None:
            changes |= numbers_for(first, heads, sizes.kv_groups)
        return backbone.from_config(with_numbers(arguments, changes))

    def stock(sizes: Sizes) -> keras.Model:
        # By keyword: Gemma 3 has them in another order.
        return task(backbone=make(sizes), preprocessor=None)

    def outlined(sizes: Sizes) -> keras.Model:
        with without_values():
            made = make(sizes)
        with without_parameters():  # the task makes an optimizer, with a value
            return task(backbone=made, preprocessor=None)

    return Source(
        start,
        arguments["vocabulary_size"],
        functools.partial(stock, start),
        stock,
        outlined,
        backbone,
        task,
    )


@dataclasses.dataclass(frozen=True)
class RunModels:
    """What a run trains, and on what."""

    config: RunConfig
    text: Tokens
    source: Source
    narrow: Sizes  # at the end
    preprocessor: Any  # saved with the narrow model
    start_id: int | None = None  # the token that every sequence begins with

    def wide(self) -> keras.Model:
        """The compiled model that is pruned."""
        return compiled(self.config, self.source.wide())

    def scratch(self) -> keras.Model:
        """A compiled narrow model with fresh weights."""
        return compiled(self.config, self.source.stock(self.narrow))

    def save(self, narrow: Any, path: pathlib.Path) -> None:
        """Saves a compacted model."""
        # Around the same backbone: a preprocessor on the model would slow it down.
        backbone, preprocessor = narrow.backbone, self.preprocessor
        task: Any = self.source.task(backbone=backbone, preprocessor=preprocessor)
        save_preset(task, path)


def run_models(config: RunConfig) -> RunModels:
    """Reads a run's text, makes its tokenizer, and gets its models ready to be made."""
    shape, made = config.model, []
    if shape.preset is None:
        prefix = HUB_FAMILIES[shape.hub].prefix
        kind = getattr(keras_hub().models, f"{prefix}CausalLMPreprocessor")

        def vocabulary(sample: str) -> Vocabulary:
            how = (shape.hub, shape.tokenizer, sample, shape.vocabulary_size)
            made.append(
                kind(make_tokenizer(*how), sequence_length=shape.sequence_length)
            )
            return tokenizer_vocabulary(made[0].tokenizer)

        text = tokens_of(config, vocabulary)
    else:
        source = source_of(config)  # before a text is tokenized
        made.append(preprocessor_of(shape.preset))
        text = tokens_of(config, tokenizer_vocabulary(made[0].tokenizer))
    (preprocessor,), starts_all = made, False
    start_id = preprocessor.tokenizer.start_token_id
    if shape.preset is None:
        source = source_of(config, text.vocabulary.vocabulary_size)
    else:
        # A released Gemma needs the start token before every sequence.
        starts_all = needs_start(source.backbone)
    every = 1 if starts_all else START_EVERY
    parts = config.distribution.model
    return RunModels(
        config,
        dataclasses.replace(text, start_id=start_id, start_every=every),
        source,
        narrow_sizes(shape, source.at_start, source.outline, parts),
        preprocessor,
        start_id if starts_all else None,
    )


def keras_hub() -> Any:
    """The module `keras_hub`, imported only now: it brings TensorFlow along."""
    return require("keras_hub", "A run", "cli", ConfigError)
