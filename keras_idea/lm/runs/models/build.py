"""The models of a run, wide and narrow, ready to train."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_idea import methods
from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.callbacks.monitor.monitor import Monitor
from keras_idea.groups.kinds import KindName
from keras_idea.keras_private.variables import without_values
from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.lm.data.tokens import Tokens
from keras_idea.lm.data.vocabulary import Vocabulary, byte_vocabulary
from keras_idea.lm.runs.config import RunConfig
from keras_idea.lm.runs.config.sizes import Sizes
from keras_idea.lm.runs.config.tables import BudgetConfig, PruningConfig
from keras_idea.lm.runs.models.compiling import compiled, rematerialize_blocks
from keras_idea.lm.runs.models.narrow_sizes import narrow_sizes
from keras_idea.models import DecoderConfig, decoder


@dataclasses.dataclass(frozen=True)
class RunModels:
    """What a run trains, whichever library its models come from."""

    corpus: Tokens  # in the models' vocabulary
    vocabulary: Vocabulary
    at_start: Sizes  # of the wide model
    at_end: Sizes  # of the narrow one
    # Makes the compiled model that is pruned.
    wide: Callable[[], keras.Model]
    # Makes a compiled one, with fresh weights and nothing of pruning in it.
    plain: Callable[[Sizes], keras.Model]
    save: Callable[[keras.Model, pathlib.Path], None]  # of a compacted model
    saved_as: str  # the entry of the run folder that it writes
    start_id: int | None = None  # what every sequence begins with, if each does


def bare_decoder(
    config: RunConfig,
    sizes: Sizes,
    ffn: Callable[..., keras.layers.Layer] = GatedFFN,
) -> keras.Model:
    """A run's byte-level decoder, not compiled."""
    shape = config.model
    head_dim = shape.model_dim // shape.num_heads
    heads, key_value_heads = shape.num_heads, shape.num_key_value_heads
    if sizes.kv_groups is not None:
        heads = sizes.kv_groups * (heads // shape.key_value_heads)
        key_value_heads = sizes.kv_groups
    made = decoder(
        DecoderConfig(
            vocabulary_size=byte_vocabulary(config.corpus.given).vocabulary_size,
            model_dim=shape.model_dim,
            num_layers=shape.num_layers,
            num_heads=heads,
            num_key_value_heads=key_value_heads,
            attention_dim=None if heads == shape.num_heads else heads * head_dim,
            hidden_dim=sizes.neurons,
            sequence_length=shape.sequence_length,
        ),
        ffn=ffn,
        dtype=config.run.dtype,
    )
    if config.run.rematerialize:
        rematerialize_blocks(made)
    return made


def decoder_models(config: RunConfig, text: Callable[..., Tokens]) -> RunModels:
    """The models of a run of this package's own byte-level decoder."""
    vocabulary = byte_vocabulary(config.corpus.given)
    start, parts = config.model.sizes_at_start, config.distribution.size[1]
    return RunModels(
        corpus=text(vocabulary=vocabulary),
        vocabulary=vocabulary,
        at_start=start,
        at_end=narrow_sizes(config.model, start, outline_of(config), parts),
        wide=lambda: compiled(config, bare_decoder(config, start, PrunableGatedFFN)),
        plain=lambda sizes: compiled(config, bare_decoder(config, sizes), False),
        save=lambda narrow, path: narrow.save(path),
        saved_as="full.keras" if config.elastic.given else "narrow.keras",
    )


def outline_of(config: RunConfig) -> Callable[[Sizes], keras.Model]:
    """Makes a run's own decoder of given sizes, its variables without values."""

    def make(sizes: Sizes) -> keras.Model:
        with without_values():
            return bare_decoder(config, sizes)

    return make


def pruning(
    settings: PruningConfig,
    budget: BudgetConfig,
    targets: Mapping[KindName, int],
    samples: Any = None,
    log_dir: Monitor | None = None,
) -> IdeaPruneCallback:
    """The callback that prunes the run's wide model.

    `targets` says of each kind the units that are kept in each layer. `samples` are
    inputs to fit what reads them on; None: nothing is fitted.
    """
    return IdeaPruneCallback(
        begin_step=budget.enlarge_steps,
        prune_steps=budget.prune_steps,
        targets=dict(targets.items()),
        method=_method_of(settings, samples),
        compact=settings.compact,
        update_every=settings.update_every,
        log_dir=log_dir,
    )


def _method_of(settings: PruningConfig, samples: Any) -> str | methods.Method:
    if settings.method == "sensitivity":
        return methods.Sensitivity(
            settings.ema_decay, settings.row_reduce, settings.matrix_reduce
        )
    fitted: dict[str, Any] = {}
    if samples is not None:
        windows = settings.refit_windows
        fitted = {"data": samples, "num_samples": windows, "refit": True}
    if settings.method == "activation":
        return methods.Activation(by_weights=settings.by_weights, **fitted)
    return methods.Random(**fitted) if fitted else settings.method
