"""Timing train steps of several models in turn.

Not run by itself; see step_cost.py.
"""

from contestants import fit, make_data

from keras_idea.runs.timing import LEAD_IN, step_seconds


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
