"""A saved model, loaded to be judged."""

import dataclasses
import functools
import os
import pathlib

import keras

from keras_idea.errors import ConfigError, EvaluationError, ExportRefused
from keras_idea.hub.families import needs_start
from keras_idea.hub.family import NUM_BYTES
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.data.vocabulary import (
    Vocabulary,
    byte_vocabulary,
    tokenizer_vocabulary,
)
from keras_idea.lm.evaluation.perplexity import TokenScorer
from keras_idea.lm.export.load import load_run, reads_bytes
from keras_idea.lm.runs.config import RunConfig, load_config

#: What to do about a preset that was saved without its tokenizer.
ADD_TOKENIZER = (
    "Load it in Python, set `lm.preprocessor` to the preprocessor of the preset that "
    "it was made of, and save it again by `lm.save_to_preset`."
)
#: Tokens a model sees at once where its run does not tell.
DEFAULT_LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A saved model, ready to be judged."""

    scorer: TokenScorer
    vocabulary: Vocabulary
    window_start: int | None = None  # the token that every window of a text begins with


def load_judged(
    path: str | os.PathLike,
    length: int | None = None,
    batch_tokens: int | None = None,
) -> LoadedModel:
    """Loads a saved model, of a run folder or a KerasHub preset, to judge it.

    `length` are the tokens that it sees at once; None: as in its run, else 1024.

    Raises:
        EvaluationError: if there is no model, or it cannot be loaded.
    """
    try:
        model = load_run(path, purpose="evaluate")
    except ExportRefused as error:
        raise EvaluationError(str(error)) from error
    preprocessor = getattr(model, "preprocessor", None)
    tokenizer = getattr(preprocessor, "tokenizer", None)
    window_start = None
    vocabulary = vocabulary_of(model)
    if vocabulary is None:
        raise EvaluationError(
            f"The model in {str(path)!r} has no tokenizer, so nobody knows which text "
            f"its token ids stand for. Received: {type(model).__name__} of "
            f"{model.output_shape[-1]:,} ids. {ADD_TOKENIZER}"
        )
    if tokenizer is not None:
        model.preprocessor = None
        config = _config_of(path)
        if needs_start(type(model.backbone)) and not (config and config.model.hub):
            window_start = getattr(tokenizer, "start_token_id", None)
    scorer = TokenScorer(
        model,
        length or trained_length(path) or DEFAULT_LENGTH,
        functools.partial(token_inputs, model),
        batch_tokens,
    )
    return LoadedModel(scorer, vocabulary, window_start)


def vocabulary_of(model: keras.Model) -> Vocabulary | None:
    """The tokens of a saved model, as `load_run` returned it.

    None: nothing tells what its ids stand for.
    """
    preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is not None:
        return tokenizer_vocabulary(preprocessor.tokenizer)
    if not reads_bytes(model):
        return None
    # A run on documents knows a token that ends one.
    return byte_vocabulary(end=model.output_shape[-1] > NUM_BYTES)


def trained_length(path: str | os.PathLike) -> int | None:
    """Tokens of the sequences that a run trained on, from its folder.

    None: it is none, or one of another version.
    """
    config = _config_of(path)
    return None if config is None else config.model.sequence_length


def served_length(path: str | os.PathLike) -> int | None:
    """As `trained_length`; None of a checkpoint's run too: that was trained longer."""
    config = _config_of(path)
    if config is None or config.model.preset is not None:
        return None
    return config.model.sequence_length


def _config_of(path: str | os.PathLike) -> RunConfig | None:
    config = pathlib.Path(path) / "config.toml"
    if not config.is_file():
        return None
    try:
        return load_config(config)
    except ConfigError:
        return None  # the caller can say --length
