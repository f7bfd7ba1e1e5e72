"""A run before its first step: text, tokenizer and models."""

import keras

from keras_idea.data import load_text
from keras_idea.monitor.event_log import tensorboardx
from keras_idea.runs.build import decoder_models
from keras_idea.runs.hub_models import hub_models
from keras_idea.runs.run import Run


def prepare(config, folder):
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
    run = Run(config, make_models(config, _read_text(config)), folder)
    run.models.corpus.check_length(config.model.sequence_length)
    return run


def describe(run):
    """A few lines on what a `Run` reads, and where it goes."""
    corpus = run.models.corpus
    return (
        f"Text: {corpus.description} ({len(corpus.train):,} tokens to train on, "
        f"{len(corpus.validation):,} held out)\n"
        f"Vocabulary: {len(corpus.token_bytes):,} tokens, "
        f"{corpus.train_bytes_per_token():.2f} bytes a token\n"
        f"Backend: {keras.backend.backend()}. Run folder: {run.folder.path}"
    )


def _read_text(config):
    """The run's text, before it is tokens: `Corpus` of bytes, or `Documents`."""
    most = round(config.data.max_megabytes * 1e6)
    if config.corpus.given:
        return config.corpus.read(config.data.validation_fraction, most)
    return load_text(config.data.text, config.data.validation_fraction, most)
