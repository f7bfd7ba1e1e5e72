"""The text that a run's narrow model writes when it is trained."""

import keras
import numpy as np

from keras_idea.lm.runs.train.run import Run
from keras_idea.lm.runs.train.time_limit import TimeLimit, shown, time_limit
from keras_idea.models.writers import writer_of


def default_prompt(run: Run) -> str:
    """How the validation text begins, 16 tokens or a prompt: to be continued."""
    text = run.models.vocabulary.decode(_opening_ids(run))
    # A character of several bytes may have been cut at either end.
    return text.strip("\ufffd") or " "


def _opening_ids(run: Run) -> list[int]:
    tokens, _, *weights = run.validation
    # Of a conversation, all before the first response.
    most = int(np.argmax(weights[0][0])) + 1 if weights else 16
    return [int(i) for i in tokens[0, len(_start(run)) : most]]


def _start(run: Run) -> list[int]:
    """The token before a prompt, if the models need it there; it is no text."""
    return [] if run.models.start_id is None else [run.models.start_id]


def written_text(run: Run, narrow: keras.Model, prompt: str) -> tuple[str, int]:
    """Text that the narrow model writes, its prompt at the beginning.

    It takes as long at most as to measure does, see `time_limit`.

    Returns:
        Pair of str and int: the text, and the new tokens in it.
    """
    settings, vocabulary = run.config.sample, run.models.vocabulary
    # The text of a conversation may lack the tokens of its template.
    by_ids = run.config.chat.given and not settings.prompt
    prompt_ids = _opening_ids(run) if by_ids else vocabulary.encode(prompt)
    start = _start(run)
    limit = time_limit(run.recorders)
    with shown(limit):
        whole = np.array([*start, *prompt_ids], "int32")
        ids = _written(run, narrow, whole, limit)[len(start) :]
    return vocabulary.decode(ids), len(ids) - len(prompt_ids)


def _written(
    run: Run, narrow: keras.Model, prompt_ids: np.ndarray, limit: TimeLimit
) -> np.ndarray:
    """The tokens, in pieces: short ones, until they tell that a long one is in time."""
    settings = run.config.sample
    total = len(prompt_ids) + settings.tokens
    writer = writer_of(
        narrow,
        run.length,
        total,
        temperature=settings.temperature,
        top_k=settings.top_k,
        seed=run.config.run.seed,
    )
    short, long = writer.pieces
    piece, ids, took, first = short, prompt_ids[None], 0.0, 0.0
    while ids.shape[1] < total and limit.allows(took):
        before = limit.spent
        ids = writer.add(ids, min(piece, total - ids.shape[1]), piece)
        took = limit.spent - before
        first = first or took  # which compiled; a long piece compiles again
        if piece < long and limit.allows(first + took * long / short):
            piece, took = long, first + took * long / short
    return ids[0]
