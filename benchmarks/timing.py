"""Timing train steps of several models in turn, and proof of what they did.

See step_cost.py.
"""

import keras_idea as ki
from benchmarks import proof
from benchmarks.contestants import fit, make_data, pruning_stage
from keras_idea.lm.runs.train.timing import LEAD_IN, step_seconds


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
