"""A run before its first step: text, tokenizer and models."""

import pathlib

import keras

from keras_idea.data import CachedCorpus, Corpus, Documents, load_text
from keras_idea.monitor.event_log import tensorboardx
from keras_idea.runs.build import decoder_models
from keras_idea.runs.config import RunConfig
from keras_idea.runs.hub_models import hub_models
from keras_idea.runs.run import Run
from keras_idea.runs.run_folder import RunFolder
from keras_idea.runs.timeline import Timeline, make_timeline


def prepare(config: RunConfig, folder: RunFolder) -> Run:
    """Reads a run's text and gets its models ready to be made.

    Args:
        config: `RunConfig`.
        folder: `RunFolder`, to which nothing is written yet.

    Returns:
        `Run`.

    Raises:
        ConfigError: if the model cannot be made.
        MissingPackage: if a package of an extra that the run needs is not installed.
        TextError: if there is no text, or less than a sequence of it.
    """
    if config.run.tensorboard:
        tensorboardx()  # before the run folder is claimed
    make_models = hub_models if config.model.of_hub else decoder_models
    models = make_models(config, _read_text(config))
    models.corpus.check_length(config.model.sequence_length)
    timeline = timeline_of(config, models.hidden_dim, models.target_dim)
    return Run(config, models, timeline, folder)


def timeline_of(
    config: RunConfig, hidden_dim: int, target_dim: int, here: bool = True
) -> Timeline:
    """The `Timeline` of a run whose FFNs begin with `hidden_dim` neurons.

    Args:
        config: `RunConfig`.
        hidden_dim: int.
        target_dim: int, neurons that they end with.
        here: bool, whether it is run in this process; if not, it is compiled.
    """
    compiled = keras.backend.backend() != "torch" or config.run.jit_compile
    return make_timeline(
        config.budget,
        config.pruning,
        hidden_dim,
        target_dim,
        config.distribution.size[1],
        eager=here and not compiled,
    )


def describe(corpus: Corpus | CachedCorpus, folder: pathlib.Path) -> str:
    """A few lines on what a run reads, and where it goes.

    Args:
        corpus: `Corpus` or `CachedCorpus`, of tokens.
        folder: path of the run folder.

    Returns:
        str, three lines.
    """
    return (
        f"Text: {corpus.description} ({len(corpus.train):,} tokens to train on, "
        f"{len(corpus.validation):,} held out)\n"
        f"Vocabulary: {len(corpus.token_bytes):,} tokens, "
        f"{corpus.train_bytes_per_token():.2f} bytes a token\n"
        f"Backend: {keras.backend.backend()}. Run folder: {folder}"
    )


def _read_text(config: RunConfig) -> Corpus | Documents:
    """The run's text, before it is tokens: `Corpus` of bytes, or `Documents`."""
    most = round(config.data.max_megabytes * 1e6)
    if config.corpus.given:
        return config.corpus.read(config.data.validation_fraction, most)
    return load_text(config.data.text, config.data.validation_fraction, most)
