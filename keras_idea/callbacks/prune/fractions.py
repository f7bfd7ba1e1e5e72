"""Of what a target that is a fraction is the fraction, if a run continues from a file.

A file of a stock model holds how wide the model is, not how wide it was. A run that had
narrowed it to 0.5 and continues from there, with the same 0.5, would halve it again.
"""

from collections.abc import Sequence

import keras

from keras_idea.errors import ArgumentError
from keras_idea.finding.find import FFN
from keras_idea.finding.targets import target_name


def check_fractions(
    prune: keras.callbacks.Callback, targets: Sequence[tuple[FFN, int]], start: int
) -> None:
    """Refuses a fraction of a width that may not be the one at first.

    That is so if nothing is known of an FFN's earlier width, and the run began before
    this `fit`, after `start` steps, but has not left the FFN as it is: it has more
    neurons than the schedule says of one that was as wide as this one.
    """
    if start <= prune.begin_step:
        return
    for ffn, target in targets:
        if not _is_relative(prune, ffn) or ffn.state.full_dim is not None:
            continue
        if ffn.width > target and _differs(prune, ffn, target, start):
            raise ArgumentError(_of_which_width(prune, ffn, target, start))


def _is_relative(prune: keras.callbacks.Callback, ffn: FFN) -> bool:
    """Whether the target depends on the width at first: of several kinds it does."""
    given = prune.targets[ffn.kind]
    return isinstance(given, float) or (given is None and len(prune.targets) > 1)


def _differs(
    prune: keras.callbacks.Callback, ffn: FFN, target: int, start: int
) -> bool:
    # Narrowed at milestones it may stand at any width.
    if start >= prune.end_step or prune.compact == "progressive":
        return True
    span = (prune.begin_step, prune.prune_steps, prune.update_every)
    schedule = prune.method.width_schedule(ffn.full_dim, target, *span)
    return ffn.width > schedule(start - 1)


def _of_which_width(
    prune: keras.callbacks.Callback, ffn: FFN, target: int, start: int
) -> str:
    name, units = target_name(prune.targets, ffn.kind), ffn.units
    given = prune.targets[ffn.kind]
    received = f"{name}={given}" if given is not None else str(prune.budget)
    return (
        "A fraction counts from the width before any narrowing, and nothing says which "
        f"that was. Received: {received}, begin_step={prune.begin_step}; the optimizer "
        f"has taken {start} steps, and {ffn.name} has {ffn.width} {units}, which may "
        f"be what this run has left. Give a number, {name}={ffn.width} or "
        f"{name}={target}; or begin_step={start}, to prune from now on. If pruning is "
        "done, train without the callback."
    )
