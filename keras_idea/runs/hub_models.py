"""The models of a run of KerasHub's: from nothing, or from a preset."""

import dataclasses
import pathlib
import warnings
from types import ModuleType
from typing import Any

import keras

from keras_idea.data import Corpus, Documents, tokenizer_vocabulary
from keras_idea.errors import ConfigError, MissingPackage
from keras_idea.extras import require
from keras_idea.hub.families import HUB_FAMILIES, ffn_layout
from keras_idea.hub.make_tokenizer import make_tokenizer
from keras_idea.keras_private.variables import without_values
from keras_idea.runs.blocks import rematerialized
from keras_idea.runs.build import RunModels, scoring
from keras_idea.runs.compiling import compiled
from keras_idea.runs.config import RunConfig
from keras_idea.runs.model_table import ModelConfig
from keras_idea.surgery import find_ffns, make_prunable


@dataclasses.dataclass(frozen=True)
class _Source:
    """Where the stock models of a run come from.

    Args:
        task: class of the models, a `keras_hub.models.CausalLM`.
        backbone: class of their backbones.
        arguments: dict, the backbone's arguments at the width of the start.
        widths: dict of those arguments that set the width -> what a neuron takes.
        preprocessor: `CausalLMPreprocessor`, with the tokenizer.
        hidden_dim: int, neurons of each FFN at the start.
        preset: str or None, where the wide model's weights come from.
    """

    task: type[keras.Model]
    backbone: type[keras.Model]
    arguments: dict[str, Any]
    widths: dict[str, int]
    preprocessor: keras.layers.Layer
    hidden_dim: int
    preset: str | None = None

    def wide(self, config: RunConfig) -> keras.Model:
        """The wide model, prunable, not compiled."""
        if self.preset is None:
            return make_prunable(self.stock(self.hidden_dim), **scoring(config))
        return _load_prunable(config)

    def stock(self, width: int) -> keras.Model:
        """A stock model with fresh weights, of `width` neurons an FFN."""
        return self._around(self._backbone(width))

    def outline(self, width: int) -> keras.Model:
        """As `stock`, its variables without values."""
        with without_values():
            backbone = self._backbone(width)
        return self._around(backbone)  # which makes an optimizer, with a value

    def _backbone(self, width: int) -> keras.Model:
        arguments = dict(self.arguments)
        for name, per_neuron in self.widths.items():
            arguments[name] = width * per_neuron
        return self.backbone.from_config(arguments)

    def _around(self, backbone: keras.Model) -> keras.Model:
        # By keyword: Gemma 3 has them in another order.
        return self.task(backbone=backbone, preprocessor=None)


def hub_models(config: RunConfig, corpus: Corpus | Documents) -> RunModels:
    """The models of a run of KerasHub's.

    They train without a preprocessor, on tokens; the saved one has it.

    Args:
        config: `RunConfig` with `model.hub` or `model.preset`.
        corpus: `Corpus` of bytes, or `Documents`.

    Returns:
        `RunModels`.

    Raises:
        ConfigError: if keras_hub is missing, the preset cannot be loaded or pruned,
            or the tokenizer cannot be trained.
    """
    if config.model.hub is not None:
        source = _from_family(config, config.model.hub, corpus)
    else:
        source = _from_preset(config)
    preprocessor = source.preprocessor
    preprocessor.sequence_length = config.model.sequence_length
    vocabulary = tokenizer_vocabulary(preprocessor.tokenizer)

    def ready(model: keras.Model) -> keras.Model:
        return compiled(config, rematerialized(config, model))

    def save(narrow: keras.Model, path: pathlib.Path) -> None:
        # Around the same backbone: a preprocessor that is not used yet would slow
        # down every `predict_on_batch` of the model it is attached to.
        task = source.task(backbone=narrow.backbone, preprocessor=preprocessor)
        task.save_to_preset(str(path))

    return RunModels(
        corpus=corpus.tokenized(vocabulary, preprocessor.tokenizer.start_token_id),
        vocabulary=vocabulary,
        hidden_dim=source.hidden_dim,
        target_dim=config.model.width_at_end(source.hidden_dim),
        wide=lambda: ready(source.wide(config)),
        plain=lambda width: ready(source.stock(width)),
        outline=lambda width: rematerialized(config, source.outline(width)),
        save=save,
        saved_as="preset",
    )


def _from_family(config: RunConfig, family: str, corpus: Corpus | Documents) -> _Source:
    shape, row = config.model, HUB_FAMILIES[family]
    hub = _keras_hub()
    tokenizer = make_tokenizer(
        family, shape.tokenizer, corpus.sample(), shape.vocabulary_size
    )
    arguments = {
        "vocabulary_size": tokenizer.vocabulary_size(),
        "num_layers": shape.num_layers,
        "num_query_heads": shape.num_heads,
        "num_key_value_heads": _key_value_heads(
            shape, row.prefix, row.from_nothing.key_value_heads
        ),
        "hidden_dim": shape.model_dim,
        "intermediate_dim": shape.hidden_dim * row.ffns.per_neuron,
        "dtype": config.run.dtype,
    }
    if row.from_nothing.needs_head_dim:
        arguments["head_dim"] = shape.model_dim // shape.num_heads
    preprocessor = getattr(hub.models, f"{row.prefix}CausalLMPreprocessor")

    return _Source(
        task=getattr(hub.models, f"{row.prefix}CausalLM"),
        backbone=getattr(hub.models, f"{row.prefix}Backbone"),
        arguments=arguments,
        widths={"intermediate_dim": row.ffns.per_neuron},
        preprocessor=preprocessor(tokenizer),
        hidden_dim=shape.hidden_dim,
    )


def _key_value_heads(shape: ModelConfig, prefix: str, own: int | None) -> int:
    """As many as the run says; else as the family, whose `own` is all it exports."""
    heads = shape.num_key_value_heads or own or shape.num_heads
    if own not in (None, heads):
        warnings.warn(
            f"A {prefix} with num_key_value_heads={heads} can be saved as a "
            "preset, but not exported to Hugging Face, where KerasHub writes only "
            f"{own}. Leave model.num_key_value_heads out for that.",
            stacklevel=2,
        )
    return heads


def _from_preset(config: RunConfig) -> _Source:
    preset = config.model.preset
    hub = _keras_hub()
    try:
        preprocessor = hub.models.CausalLMPreprocessor.from_preset(preset)
        model = _load_prunable(config)
    # From many places: no such folder, no such handle, no network, no FFN to prune.
    except Exception as error:
        raise ConfigError(
            f"`model.preset`: no model to prune comes from {preset!r}: "
            f"{' '.join(str(error).split())} Mend: the folder or handle of a preset "
            "of a KerasHub CausalLM with its tokenizer."
        ) from error
    layout = ffn_layout(model.backbone)
    return _Source(
        task=type(model),
        backbone=type(model.backbone),
        arguments=model.backbone.get_config(),
        widths=dict.fromkeys(layout.stacks.values(), layout.per_neuron),
        preprocessor=preprocessor,
        hidden_dim=find_ffns(model)[0].hidden_dim,
        preset=preset,
    )


def _keras_hub() -> ModuleType:
    """The module `keras_hub`, imported only now: it brings TensorFlow along."""
    try:
        return require("keras_hub", "A KerasHub model", "hub")
    except MissingPackage as error:
        raise ConfigError(
            f"{error}. Or delete the line `hub` (or `preset`) from [model], to train "
            "this package's own decoder."
        ) from None


def _load_prunable(config: RunConfig) -> keras.Model:
    model = _keras_hub().models.CausalLM.from_preset(
        config.model.preset, dtype=config.run.dtype
    )
    model.preprocessor = None
    return make_prunable(model, **scoring(config))
