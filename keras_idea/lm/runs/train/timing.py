"""How fast models generate, measured side by side."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import keras
import numpy as np

from keras_idea.lm.runs.train.time_limit import TimeLimit
from keras_idea.models.writers import CachedWriter, PlainWriter, writer_of
from keras_idea.validation import plural


@dataclasses.dataclass(frozen=True)
class Timed:
    """What was measured of several models, all of them in the same way.

    Attributes:
        values: dict of name to float; empty: there was no time for it.
        brief: str, how briefly; "": as long as is meant.
    """

    values: Mapping[str, float]
    brief: str = ""


#: Texts side by side and tokens of each: first short tries, which tell what more costs.
SIZES = ((1, 4), (1, 24), (4, 24), (16, 24))
ROUNDS = 3


def generation_speeds(
    models: Mapping[str, keras.Model],
    prompt: np.ndarray,
    window: int,
    limit: TimeLimit,
    on_turn: Callable[[], object] = lambda: None,
    one_pass: float = math.inf,
) -> Timed:
    """Tokens that several models generate a second: the median of their rounds.

    Texts that begin with `prompt` are written on side by side; `window` are the tokens
    that a model sees at once. No round begins that would not end within the limit, as
    far as the shorter ones before it tell: one of more texts takes at most in
    proportion, and compiles as long as they did. `one_pass` are the seconds that a pass
    over one text takes at most, if that is known.
    """
    found, first, later = Timed({}), 0.0, 0.0
    for i, (texts, tokens) in enumerate(SIZES):
        if i:
            more = texts * tokens / math.prod(SIZES[i - 1])
            first, later = first + more * later, more * later
        if texts == 1:
            passes = (tokens + 1) * one_pass * len(models)
            later = min(later, passes) if i else passes
        # A size counts only if its second round can be had, too.
        if not limit.allows(first + (later if i else 0.0)):
            return found
        prompts = np.tile(prompt, (texts, 1))
        writers = {
            name: writer_of(model, window, prompts.shape[1] + tokens)
            for name, model in models.items()
        }
        # Of the first round of all nothing is known but what the model before took.
        tries = _round(writers, prompts, tokens, on_turn, None if i else limit)
        if len(tries) < len(models):
            return found
        first = sum(tries.values())
        later = min(first, later)
        rounds: list[dict[str, float]] = []
        while len(rounds) < (ROUNDS if i == len(SIZES) - 1 else 1):
            if not limit.allows(later):
                return found
            rounds.append(_round(writers, prompts, tokens, on_turn))
            later = sum(rounds[-1].values())
            found = _speeds(rounds, texts, tokens)
    return found


def _round(
    writers: Mapping[str, PlainWriter | CachedWriter],
    prompts: np.ndarray,
    tokens: int,
    on_turn: Callable[[], object],
    limit: TimeLimit | None = None,
) -> dict[str, float]:
    """Seconds that each model takes for the texts.

    With a limit, of fewer models if one more would take too long: as the one before.
    """
    seconds: dict[str, float] = {}
    for name, writer in writers.items():
        if limit is not None and not limit.allows(max(seconds.values(), default=0.0)):
            break
        start = time.perf_counter()
        writer.add(prompts, tokens, tokens)
        seconds[name] = time.perf_counter() - start
        on_turn()
    return seconds


def _speeds(rounds: Sequence[dict[str, float]], texts: int, tokens: int) -> Timed:
    count = len(rounds)
    extent = f"{plural(count, 'round')} of {plural(texts, 'text')} of {tokens} tokens"
    medians = {
        name: statistics.median(seconds[name] for seconds in rounds)
        for name in rounds[0]
    }
    return Timed(
        {name: texts * tokens / seconds for name, seconds in medians.items()},
        "" if (texts, tokens, count) == (*SIZES[-1], ROUNDS) else extent,
    )
