"""Judging a saved model: perplexity of a text, and benchmarks."""

import dataclasses
import functools
import pathlib

import keras
import numpy as np
import rich.console
import rich.progress
import rich.table

from keras_idea.data import load_text
from keras_idea.data.vocabulary import (
    Vocabulary,
    byte_vocabulary,
    tokenizer_vocabulary,
)
from keras_idea.errors import EvaluationError, ExportRefused
from keras_idea.evaluation import TokenScorer, perplexity
from keras_idea.export.load import load_run
from keras_idea.export.tokenizers import start_token
from keras_idea.extras import require

# A text is held in memory whole, and its tokens too.
_MOST_BYTES = 512_000_000
#: Tokens a model sees at once where its run does not tell.
DEFAULT_LENGTH = 1024


@dataclasses.dataclass(frozen=True)
class Judged:
    """A saved model, ready to be judged.

    Attributes:
        scorer: `TokenScorer`.
        vocabulary: `Vocabulary`.
        start_id: int, the token that stands before a text.
        end_id: int or None, the token at which generated text ends.
        add_start: bool, whether `start_id` begins every text.
        special_ids: frozenset of int, tokens that stand for no text.
    """

    scorer: TokenScorer
    vocabulary: Vocabulary
    start_id: int
    end_id: int | None
    add_start: bool = False
    special_ids: frozenset = frozenset()


def load_judged(path, length=None, batch_tokens=8192):
    """Loads a saved model to judge it.

    Args:
        path: path of a run folder, or of a KerasHub preset.
        length: int or None, tokens it sees at once; None: as many as in its run,
            else 1024.
        batch_tokens: int, tokens scored at once.

    Returns:
        `Judged`.

    Raises:
        EvaluationError: if there is no model, or it cannot be loaded.
    """
    try:
        model = load_run(path)
    except ExportRefused as error:
        raise EvaluationError(str(error).replace("to export", "to evaluate")) from error
    preprocessor = getattr(model, "preprocessor", None)
    tokenizer = getattr(preprocessor, "tokenizer", None)
    add_start, special_ids = False, frozenset[int]()
    if tokenizer is None:
        # A run on documents knows a token that ends one.
        vocabulary = byte_vocabulary(end=model.output_shape[-1] > 256)
        end: int | None = vocabulary.end_id
        start: int | None = ord("\n") if end is None else end
    else:
        vocabulary = tokenizer_vocabulary(tokenizer)
        end = getattr(tokenizer, "end_token_id", None)
        start = getattr(tokenizer, "start_token_id", None)
        start = end if start is None else start
        add_start = start_token(preprocessor) is not None
        special_ids = frozenset(getattr(tokenizer, "special_token_ids", None) or ())
        model.preprocessor = None
    scorer = TokenScorer(
        model,
        length or _trained_length(path) or DEFAULT_LENGTH,
        _token_inputs if isinstance(model.input, dict) else None,
        batch_tokens,
    )
    return Judged(scorer, vocabulary, start or 0, end, add_start, special_ids)


def harness_model(judged):
    """A model as lm-evaluation-harness takes it.

    Args:
        judged: `Judged`.

    Returns:
        `keras_idea.evaluation.harness.HarnessModel`.
    """
    from keras_idea.evaluation.harness import HarnessModel

    return HarnessModel(
        judged.scorer,
        judged.vocabulary.encode,
        judged.vocabulary.decode,
        judged.start_id,
        judged.end_id,
        judged.add_start,
        judged.special_ids,
    )


def judge_text(judged, source, stride=None):
    """Perplexity over the whole of a text.

    Args:
        judged: `Judged`.
        source: path of a text file or folder, or "stdlib".
        stride: int or None, as of `keras_idea.evaluation.perplexity`.

    Returns:
        `Perplexity`.

    Raises:
        EvaluationError: if there is more than 512 MB of text, or one token of it.
        TextError: if there is none.
    """
    corpus = load_text(source, max_bytes=_MOST_BYTES)
    text = np.concatenate([corpus.train, corpus.validation]).tobytes()
    if len(text) >= _MOST_BYTES:
        raise EvaluationError(
            f"The text {str(source)!r} has {_MOST_BYTES:,} bytes or more, which are "
            "held in memory at once. Give a part of it."
        )
    ids = judged.vocabulary.encode(text.decode("utf-8", "replace"))
    if len(ids) < 2:
        raise EvaluationError(
            f"The text {str(source)!r} has {len(ids)} token; of two or more all but "
            "the first are predicted. Give more text."
        )
    with rich.progress.Progress(transient=True) as progress:
        task = progress.add_task("windows", total=None)
        return perplexity(
            judged.scorer,
            ids,
            judged.vocabulary.token_bytes,
            stride,
            functools.partial(progress.advance, task),
        )


def judge_tasks(judged, names, local=None, limit=None):
    """Carries out benchmarks of lm-evaluation-harness.

    Args:
        judged: `Judged`.
        names: list of str, its tasks.
        local: path of a folder of local files, or None: from the hub, by name.
        limit: int or None, documents of each task, at most.

    Returns:
        dict of task to dict of metric to number.

    Raises:
        MissingPackage: if lm-evaluation-harness is not installed.
        ValueError: for a local file that is missing or broken.
    """
    lm_eval = require("lm_eval", "Carrying out tasks", "eval")
    from keras_idea.evaluation.hub_tasks import PaperTasks
    from keras_idea.evaluation.local_tasks import local_tasks

    tasks = names if local is None else local_tasks(names, local)
    results = lm_eval.simple_evaluate(
        harness_model(judged),
        tasks=tasks,
        limit=limit,
        bootstrap_iters=1000,
        # Reading its thousands of own tasks takes half a minute.
        task_manager=PaperTasks(include_defaults=local is None),
    )
    return {
        task: {
            name.removesuffix(",none"): value
            for name, value in values.items()
            if isinstance(value, (int, float)) and name != "sample_len"
        }
        for task, values in results["results"].items()
    }


def _token_inputs(ids):
    """What KerasHub's models take; padding stands on the right, unseen."""
    return {"token_ids": ids, "padding_mask": keras.ops.ones_like(ids)}


def _trained_length(path):
    from keras_idea.errors import ConfigError
    from keras_idea.runs.config import load_config

    config = pathlib.Path(path) / "config.toml"
    if not config.is_file():
        return None
    try:
        return load_config(config).model.sequence_length
    except ConfigError:
        return None  # of another version: the caller can say --length


def print_text(found, console=None):
    """Prints what `judge_text` found as a table.

    Args:
        found: `Perplexity`.
        console: `rich.console.Console` or None: the standard output.
    """
    _print(
        {
            "text": {
                "bits a byte": f"{found.bits_per_byte:.4f}",
                "perplexity a token": f"{found.per_token:.4f}",
                "tokens": f"{found.tokens:,}",
            }
        },
        console,
    )


def print_tasks(found, console=None):
    """Prints what `judge_tasks` found as a table.

    Args:
        found: dict of task to dict of metric to number.
        console: `rich.console.Console` or None: the standard output.
    """
    rows = {
        task: {name: f"{value:.4f}" for name, value in metrics.items()}
        for task, metrics in found.items()
    }
    _print(rows, console)


def _print(groups, console):
    table = rich.table.Table("judged by", "metric", "value", box=None)
    for group, metrics in groups.items():
        for i, (name, value) in enumerate(metrics.items()):
            table.add_row("" if i else group, name, value)
    (console or rich.console.Console()).print(table)
