"""`keras-idea evaluate`: loads a saved model and measures its perplexity on a text."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from typing import Any

import keras

from keras_idea._lm.data.documents import documents, find_files
from keras_idea._lm.data.vocabulary import Vocabulary, tokenizer_vocabulary
from keras_idea._lm.evaluation.perplexity import Perplexity, TokenScorer, perplexity
from keras_idea._lm.export.load import load_run
from keras_idea._lm.runs.config import RunConfig, load_config
from keras_idea.errors import ArgumentError, ConfigError
from keras_idea.hub.families import needs_start
from keras_idea.hub.inputs import token_inputs

#: Tokens that a model sees at once if its run does not say.
DEFAULT_LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A saved model, ready to be evaluated."""

    scorer: TokenScorer
    vocabulary: Vocabulary
    window_start: int | None = None


def load_judged(path: str | os.PathLike, length: int | None = None) -> LoadedModel:
    """Loads a run's narrow model, or any checkpoint, to evaluate it."""
    model: Any = load_run(path)
    vocabulary, window_start = vocabulary_of(model), None
    if vocabulary is None:
        raise ArgumentError(
            f"The model in {str(path)!r} has no tokenizer. Save it with its "
            "preprocessor, by `lm.save_to_preset`."
        )
    config = run_config_at(path)
    from_nothing = config is not None and config.model.preset is None
    if needs_start(type(model.backbone)) and not from_nothing:
        window_start = model.preprocessor.tokenizer.start_token_id
    model.preprocessor = None
    if length is None:
        trained = None if config is None else config.model.sequence_length
        length = trained or DEFAULT_LENGTH
    positions = getattr(model.backbone, "max_sequence_length", None)
    length = length if positions is None else min(length, positions)
    scorer = TokenScorer(model, length, functools.partial(token_inputs, model))
    return LoadedModel(scorer, vocabulary, window_start)


def judge_text(
    judged: LoadedModel, source: str | os.PathLike, stride: int | None = None
) -> Perplexity:
    """Measures the perplexity of a text: a file or folder, or "stdlib"."""
    ids = judged.vocabulary.encode(whole_text(source))
    if len(ids) < 2:
        raise ArgumentError(f"{str(source)!r} has no 2 tokens. Give more text.")
    sizes, start = judged.vocabulary.token_bytes, judged.window_start
    with contextlib.redirect_stdout(sys.stderr):  # the progress bar
        return perplexity(judged.scorer, ids, sizes, stride, start, verbose=True)


def whole_text(source: str | os.PathLike) -> str:
    """The text of a file, a folder or "stdlib"."""
    return "".join(documents(find_files(source).values()))


def shown(found: Perplexity) -> str:
    """The lines that `keras-idea evaluate` prints."""
    lines = {
        "bits per byte": f"{found.bits_per_byte:.4f}",
        "perplexity per token": f"{found.per_token:.4f}",
        "predicted tokens": f"{found.tokens:,}",
        "window": f"{found.window:,} tokens",
        "stride": f"{found.stride:,} tokens",
    }
    if found.start_id is not None:
        lines["every window begins with"] = f"the start token, {found.start_id}"
    return "\n".join(f"{name + ':':26}{value}" for name, value in lines.items())


def vocabulary_of(model: keras.Model) -> Vocabulary | None:
    """Returns the vocabulary of a saved model; None if it has no tokenizer."""
    preprocessor = getattr(model, "preprocessor", None)
    return (
        None if preprocessor is None else tokenizer_vocabulary(preprocessor.tokenizer)
    )


def run_config_at(path: str | os.PathLike) -> RunConfig | None:
    """The config in a run folder; None if it is no run folder of this version."""
    try:
        return load_config(pathlib.Path(path) / "config.toml")
    except ConfigError:
        return None
