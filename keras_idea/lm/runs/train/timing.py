"""How fast models train and generate, measured side by side."""

import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.runs.train.time_limit import TimeLimit
from keras_idea.models.writers import CachedWriter, PlainWriter, writer_of
from keras_idea.validation import plural

#: Steps of a `fit` that do not count: the first moves the state (jax) or makes the
#: iterator (tensorflow); and one more.
LEAD_IN = 2


class Clock(keras.callbacks.Callback):
    """Notes when each step's result was there.

    Where the backend allows it Keras calls an `async_safe` callback from a thread of
    its own, which waits for the loss, while the main thread already dispatches the
    next step: so the clock neither forces the steps apart nor takes the dispatch of a
    step for its end.
    """

    async_safe = True

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Forgets the last turn."""
        self.ends: dict[int, float] = {}

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Notes the time; `logs` hold numbers, so the step is done."""
        self.ends[batch] = time.perf_counter()

    def seconds_per_step(self) -> float:
        """Mean seconds of the steps after the lead-in."""
        first, last = LEAD_IN - 1, max(self.ends)
        return (self.ends[last] - self.ends[first]) / (last - first)


@dataclasses.dataclass(frozen=True)
class Timed:
    """What was measured of several models, all of them in the same way.

    Attributes:
        values: dict of name to float; empty: there was no time for it.
        brief: str, how briefly; "": as long as is meant.
    """

    values: Mapping[str, float]
    brief: str = ""


def step_seconds(
    fits: Mapping[str, Callable[[Clock], object]],
    turns: int,
    on_turn: Callable[[], object] = lambda: None,
    allowed: Callable[[], bool] = lambda: True,
    compiled: bool = False,
) -> dict[str, np.ndarray]:
    """Seconds per train step of several models, measured in turn.

    The models take turns, so that a machine that is busy for a while slows all of
    them. A turn is one `fit`, because `fit` is what a run calls. `train_on_batch`
    would be no simpler and less fair: on jax it copies the whole state out of and into
    the Keras variables at each step, which `fit` does once an epoch (the pruning model
    has more variables, so it would be charged for what no run pays).

    Args:
        fits: dict of name to function that calls `fit` once, with the `Clock` it is
            given as its last callback, for more than `LEAD_IN` steps.
        turns: int, turns of each model. A first one, which compiles, is not counted.
        on_turn: function called after each model's turn.
        allowed: function that tells before each round of turns whether there is time.
        compiled: bool, whether the models are, so that the first turn counts.

    Returns:
        dict of name to float array `(turns,)`, seconds per step; fewer if there was no
        time for more.
    """
    names, clock = list(fits), Clock()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(int(compiled), turns + 1):
        if not allowed():
            break
        # Each starts the round in its turn, so that none always follows the same.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            fits[name](clock)
            if turn:
                seconds[name].append(clock.seconds_per_step())
            on_turn()
    return {name: np.asarray(values) for name, values in seconds.items()}


#: Turns of each model, and steps of a turn that count.
TURNS, STEPS = 5, 6


def step_times(
    models: Mapping[str, keras.Model],
    batch: tuple[np.ndarray, ...],
    limit: TimeLimit,
    on_turn: Callable[[], object] = lambda: None,
) -> Timed:
    """Milliseconds of a training step of several models: the median of their turns.

    They are compiled, and go on training on `batch`, tokens and the token that follows
    each: measure only those that are done with. What a step costs is known from one of
    each, which also compiles; no turn begins that would not end within the limit.
    """
    alone: dict[str, float] = {}
    for name, model in models.items():
        # Another's first steps are the best guess of these.
        before = limit.spent
        _fit(model, batch, LEAD_IN + 1, clock := Clock())
        alone[name] = clock.seconds_per_step()
        on_turn()
        if len(alone) < len(models) and not limit.allows(limit.spent - before):
            return Timed({})
    of_all = sum(alone.values())
    steps = STEPS if limit.allows(of_all * (LEAD_IN + STEPS)) else 1
    fits = {
        name: functools.partial(_fit, model, batch, LEAD_IN + steps)
        for name, model in models.items()
    }
    seconds = step_seconds(
        fits,
        TURNS,
        on_turn,
        allowed=lambda: limit.allows(of_all * (LEAD_IN + steps)),
        compiled=True,
    )
    turns = min(map(len, seconds.values()))
    if not turns:
        return Timed(_milliseconds(alone), "1 step")
    how = f"{plural(turns, 'turn')} of {plural(steps, 'step')}"
    how = how * ((turns, steps) != (TURNS, STEPS))
    medians = {name: statistics.median(s.tolist()) for name, s in seconds.items()}
    return Timed(_milliseconds(medians), how)


def _milliseconds(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: 1000 * value for name, value in seconds.items()}


def _fit(
    model: keras.Model,
    batch: tuple[np.ndarray, ...],
    steps: int,
    clock: Clock,
) -> None:
    x_and_y = (token_inputs(model, batch[0]), batch[1])
    batches: Iterable[Any] = (x_and_y for _ in itertools.count())
    # The base class's: KerasHub's takes no generator.
    keras.Model.fit(
        model,
        batches,
        steps_per_epoch=steps,
        shuffle=False,
        callbacks=[clock],
        verbose=0,
    )


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
