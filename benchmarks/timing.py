"""Timing train steps of several models in turn, and proof of what they did.

See step_cost.py.
"""

import time
from collections.abc import Callable, Mapping

import keras
import numpy as np

import keras_idea as ki
from benchmarks import proof
from benchmarks.contestants import fit, make_data, pruning_stage

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


def time_in_turns(contestants, shape, turns, on_turn=lambda: None):
    """Seconds per train step of several models, measured in turn.

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

    def turn_of(model, callbacks):
        return lambda clock: fit(model, shape, data, [*callbacks, clock])

    fits = {name: turn_of(*contestant) for name, contestant in contestants.items()}
    return step_seconds(fits, turns, on_turn)


def check_contestants(contestants, shape, turns):
    """Raises unless the contestants did what their names say, after their turns.

    Args:
        contestants: dict, of `make_contestants`.
        shape: `Shape` that they were made and timed with.
        turns: int, timed turns of each.

    Raises:
        NotPrunedError: if a pruner did nothing, or a narrow model is not narrow.
    """
    models = {name: model for name, (model, _) in contestants.items()}
    steps = (turns + 1) * (LEAD_IN + shape.steps_per_turn)  # the first compiles
    schedule = ki.CubicWidth(shape.hidden_dim, shape.target_dim, **pruning_stage(shape))
    for name in models.keys() & {"pruning", "pruning + callback"}:
        proof.check_masked(name, models[name], schedule(steps), steps)
    for name in models.keys() & {"tracking"}:
        proof.check_seen(name, models[name], steps)
    narrow = models.get("built narrow")
    for name in models.keys() & {"compacted in place", "compact(model)"}:
        proof.check_narrow(name, models[name], shape.target_dim, like=narrow)
