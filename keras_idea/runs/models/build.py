"""The models of a run, wide and narrow, ready to train."""

import dataclasses
import pathlib
from collections.abc import Callable

import keras

from keras_idea import methods
from keras_idea.callbacks import IdeaPruneCallback
from keras_idea.data import Vocabulary, byte_vocabulary
from keras_idea.data.tokens.tokenized import RawText, TokenizedText
from keras_idea.keras_private.variables import without_values
from keras_idea.layers import GatedFFN, PrunableGatedFFN
from keras_idea.models import DecoderConfig, decoder
from keras_idea.monitor.monitor import Monitor
from keras_idea.runs.config import RunConfig
from keras_idea.runs.config.tables import BudgetConfig, PruningConfig
from keras_idea.runs.models.blocks import rematerialized
from keras_idea.runs.models.compiling import compiled
from keras_idea.runs.models.narrow_width import narrow_width


@dataclasses.dataclass(frozen=True)
class RunModels:
    """What a run trains, whichever library its models come from.

    Args:
        corpus: `TokenizedText`, in the models' vocabulary.
        vocabulary: `Vocabulary`, which that is.
        hidden_dim: int, neurons of each FFN at the start.
        target_dim: int, neurons of each FFN at the end.
        wide: function that makes the compiled model that is pruned.
        plain: function of a width that makes a compiled model of that many neurons
            an FFN, with fresh weights and nothing of pruning in it.
        save: function of a compacted model and a path.
        saved_as: str, the entry of the run folder that it writes.
    """

    corpus: TokenizedText
    vocabulary: Vocabulary
    hidden_dim: int
    target_dim: int
    wide: Callable[[], keras.Model]
    plain: Callable[[int], keras.Model]
    save: Callable[[keras.Model, pathlib.Path], None]
    saved_as: str


def bare_decoder(
    config: RunConfig,
    width: int,
    ffn: Callable[..., keras.layers.Layer] = GatedFFN,
) -> keras.Model:
    """A run's byte-level decoder, not compiled.

    Args:
        config: `RunConfig`.
        width: int, neurons of each FFN.
        ffn: function that makes an FFN. Default `GatedFFN`.

    Returns:
        keras.Model.
    """
    shape = config.model
    made = decoder(
        DecoderConfig(
            vocabulary_size=byte_vocabulary(config.corpus.given).vocabulary_size,
            model_dim=shape.model_dim,
            num_layers=shape.num_layers,
            num_heads=shape.num_heads,
            num_key_value_heads=shape.num_key_value_heads,
            hidden_dim=width,
            sequence_length=shape.sequence_length,
        ),
        ffn=ffn,
        dtype=config.run.dtype,
    )
    return rematerialized(made, config.run.rematerialize)


def decoder_models(config: RunConfig, text: RawText) -> RunModels:
    """The models of a run of this package's own byte-level decoder.

    Args:
        config: `RunConfig`.
        text: `RawText`.

    Returns:
        `RunModels`.
    """
    shape = config.model
    vocabulary = byte_vocabulary(config.corpus.given)

    return RunModels(
        corpus=text.tokenized(vocabulary),
        vocabulary=vocabulary,
        hidden_dim=shape.hidden_dim,
        target_dim=narrow_width(
            shape, shape.hidden_dim, outline_of(config), config.distribution.size[1]
        ),
        wide=lambda: compiled(
            config, bare_decoder(config, shape.hidden_dim, PrunableGatedFFN)
        ),
        plain=lambda width: compiled(config, bare_decoder(config, width), False),
        save=lambda narrow, path: narrow.save(path),
        saved_as="narrow.keras",
    )


def outline_of(config: RunConfig) -> Callable[[int], keras.Model]:
    """Makes a run's own decoder of a width, its variables without values."""

    def make(width: int) -> keras.Model:
        with without_values():
            return bare_decoder(config, width)

    return make


def pruning(
    settings: PruningConfig,
    budget: BudgetConfig,
    target_dim: int,
    log_dir: Monitor | None = None,
) -> IdeaPruneCallback:
    """The callback that prunes the run's wide model.

    Args:
        settings: `PruningConfig`.
        budget: `BudgetConfig`.
        target_dim: int, neurons of each FFN at the end.
        log_dir: `Monitor` or None.

    Returns:
        `IdeaPruneCallback`.
    """
    method: str | methods.Method = settings.method
    if method == "sensitivity":
        method = methods.Sensitivity(
            settings.ema_decay, settings.row_reduce, settings.matrix_reduce
        )
    return IdeaPruneCallback(
        target_dim,
        budget.enlarge_steps,
        budget.prune_steps,
        method=method,
        compact=settings.compact,
        update_every=settings.update_every,
        log_dir=log_dir,
    )
