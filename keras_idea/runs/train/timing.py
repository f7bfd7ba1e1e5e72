"""How fast models train and generate, measured side by side."""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.hub.inputs import token_inputs
from keras_idea.models.generate import generate

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


def step_seconds(
    fits: Mapping[str, Callable[[Clock], object]],
    turns: int,
    on_turn: Callable[[], object] = lambda: None,
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

    Returns:
        dict of name to float array `(turns,)`, seconds per step.
    """
    names, clock = list(fits), Clock()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(turns + 1):
        # Each starts the round in its turn, so that none always follows the same.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            fits[name](clock)
            if turn:
                seconds[name].append(clock.seconds_per_step())
            on_turn()
    return {name: np.asarray(values) for name, values in seconds.items()}


def step_times(
    models: Mapping[str, keras.Model],
    batch: tuple[np.ndarray, ...],
    turns: int = 5,
    steps: int = 6,
) -> dict[str, float]:
    """Milliseconds of a training step of several models: the median of their turns.

    They are compiled, and go on training on `batch`, tokens and the token that follows
    each: measure only those that are done with. A turn counts `steps` of its steps.
    """
    fits = {
        name: functools.partial(_fit, model, batch, LEAD_IN + steps)
        for name, model in models.items()
    }
    return {
        name: 1000 * statistics.median(seconds.tolist())
        for name, seconds in step_seconds(fits, turns).items()
    }


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


def generation_speeds(
    models: Mapping[str, keras.Model],
    prompt: np.ndarray,
    window: int,
    texts: int = 16,
    tokens: int = 24,
    rounds: int = 3,
) -> dict[str, float]:
    """Tokens that several models generate a second: the median of their rounds.

    In each `tokens` are added to so many texts side by side, which begin with `prompt`;
    `window` are the tokens that a model sees at once.
    """
    prompts = np.tile(prompt, (texts, 1))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 1):
        for name, model in models.items():
            start = time.perf_counter()
            generate(model, prompts, tokens, window=window)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {
        name: texts * tokens / statistics.median(times)
        for name, times in seconds.items()
    }
