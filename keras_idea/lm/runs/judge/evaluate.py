"""Loads a run's or a saved model, and has `keras_idea.evaluation` judge it."""

import functools
import os

import rich.console
import rich.progress
import rich.table

from keras_idea.errors import EvaluationError
from keras_idea.lm.data.documents import documents, find_files
from keras_idea.lm.evaluation.perplexity import Perplexity, perplexity
from keras_idea.lm.runs.judge.judged import LoadedModel
from keras_idea.validation import plural

# A text is held in memory whole, and its tokens too.
_MOST_BYTES = 512_000_000


def judge_text(
    judged: LoadedModel, source: str | os.PathLike, stride: int | None = None
) -> Perplexity:
    """Perplexity over the whole of a text: a file or folder, or "stdlib".

    Raises:
        EvaluationError: if there is more than 512 MB of text, or one token of it.
    """
    files = find_files(source)
    if sum(file.stat().st_size for file in files.values()) >= _MOST_BYTES:
        raise EvaluationError(
            f"The text {str(source)!r} has {_MOST_BYTES:,} bytes or more, which are "
            "held in memory at once. Give a part of it."
        )
    ids = judged.vocabulary.encode("".join(documents(files.values())))
    if len(ids) < 2:
        raise EvaluationError(
            f"The text {str(source)!r} is too short: it has "
            f"{plural(len(ids), 'token')}, and at least 2 are needed. Give more text."
        )
    with rich.progress.Progress(transient=True) as progress:
        task = progress.add_task("windows", total=None)
        return perplexity(
            judged.scorer,
            ids,
            judged.vocabulary.token_bytes,
            stride,
            functools.partial(progress.advance, task),
            judged.window_start,
        )


def print_text(found: Perplexity) -> None:
    """Prints what `judge_text` found as a table."""
    metrics = {
        "bits per byte": f"{found.bits_per_byte:.4f}",
        "perplexity per token": f"{found.per_token:.4f}",
        "predicted tokens": f"{found.tokens:,}",
    }
    if found.window is not None and found.stride is not None:
        metrics["window"] = plural(found.window, "token")
        metrics["stride"] = plural(found.stride, "token")
        moved = (found.window - found.tokens) % found.stride
        if moved and found.tokens > found.window:
            metrics["last window"] = f"begins {plural(moved, 'token')} earlier: full"
    if found.start_id is not None:
        metrics["every window begins with"] = f"the start token, {found.start_id}"
    _print({"text": metrics})


def _print(groups: dict[str, dict[str, str]]) -> None:
    table = rich.table.Table("judged by", "metric", "value", box=None)
    for group, metrics in groups.items():
        for i, (name, value) in enumerate(metrics.items()):
            table.add_row("" if i else group, name, value)
    rich.console.Console().print(table)
