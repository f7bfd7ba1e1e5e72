"""The narrowings that a run in `fit` still has before it, and the cut itself.

The steps of a whole run: `keras_idea.functional.milestones`. Neurons that are
masked never come back, so which step takes them out changes nothing of what the model
computes. The living keep their scores and go on being ranked; after the last step there
is nothing left to rank.
"""

from collections.abc import Sequence

import keras
import numpy as np

from keras_idea.callbacks.prune.compile_ahead import Milestone
from keras_idea.finding.find import FFN
from keras_idea.functional.milestones import (
    Compact,
    narrowing_steps,
    stored_width,
)
from keras_idea.step.track import Track
from keras_idea.surgery.narrow_in_place import narrow_whole


def stored_neurons(mask: np.ndarray, width: int) -> np.ndarray:
    """Ascending indices of the living neurons, filled up with dead ones to `width`.

    Example:
    >>> stored_neurons(np.array([0.0, 1.0, 0.0, 1.0]), width=3)
    array([0, 1, 3])
    """
    return np.sort(np.argsort(-mask, kind="stable")[..., :width])


def steps_to_come(
    compact: Compact,
    tracks: Sequence[Track],
    end_step: int,
    start: int,
    eager: bool = False,
) -> list[int]:
    """The optimizer steps after which a run that begins now narrows its model.

    Empty if all FFNs are as narrow as they are to be.
    """
    if all(track.ffn.hidden_dim <= track.target_dim for track in tracks):
        return []
    schedules = [track.schedule for track in tracks]
    steps = narrowing_steps(compact, schedules, end_step, eager)
    # A resumed run has the widths of the one that was not stopped.
    steps = [s for s in steps if s > start or s >= end_step or not _done(tracks, s)]
    # If pruning is over by the schedule, the next step is the first that can mask.
    late = any(track.began > track.schedule(start) for track in tracks)
    return sorted({max(s, start + 1) if late else s for s in steps})


def milestones_to_come(tracks: Sequence[Track], steps: list[int]) -> list[Milestone]:
    """What the schedules say of the narrowings after `steps`."""
    return [
        (step, [(track.ffn, _planned(track, step, last)) for track in tracks], last)
        for step in steps
        for last in [step == steps[-1]]
    ]


def narrow(model: keras.Model, tracks: Sequence[Track], last: bool) -> None:
    """Cuts out pruned units, between two steps, while no pruner is at work.

    The variables of the model are in sync. If `last`, no pruning follows.
    """
    narrow_whole(model, _cuts(tracks, last))


def _done(tracks: Sequence[Track], step: int) -> bool:
    """Whether an earlier part of the run has narrowed the model after `step`."""
    return all(t.ffn.hidden_dim <= _width_for(t, t.schedule(step)) for t in tracks)


def _planned(track: Track, step: int, last: bool) -> int:
    if last:  # methods that decide once fall one step later
        return track.target_dim
    return min(track.ffn.hidden_dim, _width_for(track, track.schedule(step)))


def _cuts(tracks: Sequence[Track], last: bool) -> list[tuple[FFN, np.ndarray]]:
    """List of (FFN, indices to keep) of those that are wider than they need be."""
    cuts = []
    for track in tracks:
        ffn = track.ffn
        width = ffn.width if last else _width_for(track, ffn.width)
        if width < ffn.hidden_dim:
            mask = keras.ops.convert_to_numpy(ffn.mask)
            cuts.append((ffn, stored_neurons(mask, width)))
    return cuts


def _width_for(track: Track, active: int) -> int:
    return stored_width(active, track.schedule, track.ffn.device_parts)
