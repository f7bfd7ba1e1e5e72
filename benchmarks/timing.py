"""Timing train steps of several models in turn, and ratios with intervals.

Not run by itself; see step_cost.py.
"""

import dataclasses
import time

import keras
import numpy as np
from contestants import fit, make_data

# The first step of a `fit` moves the state (jax) or makes the iterator
# (tensorflow); before the second one the pruning callback checks its counts once.
LEAD_IN = 2


class Clock(keras.callbacks.Callback):
    """Notes when each step's result was there.

    Where the backend allows it Keras calls an `async_safe` callback from a
    thread of its own, which waits for the loss, while the main thread already
    dispatches the next step: so the clock neither forces the steps apart nor
    takes the dispatch of a step for its end.
    """

    async_safe = True

    def on_train_begin(self, logs=None):
        """Forgets the last turn."""
        self.ends = {}

    def on_train_batch_end(self, batch, logs=None):
        """Notes the time; `logs` hold numbers, so the step is done."""
        self.ends[batch] = time.perf_counter()

    def seconds_per_step(self):
        """Mean seconds of the steps after the lead-in."""
        last = max(self.ends)
        first = LEAD_IN - 1
        return (self.ends[last] - self.ends[first]) / (last - first)


def time_in_turns(contestants, shape, turns, on_turn=lambda: None):
    """Seconds per train step of several models, measured in turn.

    A turn is one `fit` over `shape.steps_per_turn` batches, because `fit` is
    what a run calls. `train_on_batch` would be no simpler and less fair: on jax it
    copies the whole state out of and into the Keras variables at each step, which
    `fit` does once an epoch (the pruning model has more variables, so it would
    be charged for what no run pays).

    Args:
        contestants: dict of name to (compiled model, list of callbacks).
        shape: `Shape`.
        turns: int, turns of each model. A first one, which compiles, is not
            counted.
        on_turn: function called after each model's turn.

    Returns:
        dict of name to float array `(turns,)`, seconds per step.
    """
    data = make_data(shape, LEAD_IN + shape.steps_per_turn)
    names, clock = list(contestants), Clock()
    seconds = {name: [] for name in names}
    for turn in range(turns + 1):
        # Each starts the round in its turn, so that none always follows the same.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            model, callbacks = contestants[name]
            fit(model, shape, data, [*callbacks, clock])
            if turn:
                seconds[name].append(clock.seconds_per_step())
            on_turn()
    return {name: np.asarray(values) for name, values in seconds.items()}


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The ratio of two measurements made in pairs.

    Attributes:
        median: float, median of the pairs' ratios.
        low: float, lower end of its 95 % bootstrap interval.
        high: float, upper end of it.
        of_fast: float, ratio of the two lower quartiles: on a shared machine the
            faster turns are the less disturbed. (Not of the two fastest: when
            the clock's thread wakes up late a turn seems too short.)
    """

    median: float
    low: float
    high: float
    of_fast: float


def paired_ratio(numerator, denominator, resamples=2000):
    """`Ratio` of two arrays whose entries were measured in the same rounds."""
    numerator, denominator = np.asarray(numerator), np.asarray(denominator)
    ratios = numerator / denominator
    generator = np.random.default_rng(0)
    picks = generator.integers(len(ratios), size=(resamples, len(ratios)))
    low, high = np.quantile(np.median(ratios[picks], axis=1), [0.025, 0.975])
    return Ratio(
        median=float(np.median(ratios)),
        low=float(low),
        high=float(high),
        of_fast=float(np.quantile(numerator, 0.25) / np.quantile(denominator, 0.25)),
    )
