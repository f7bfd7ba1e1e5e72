"""What Algorithm 1 does after an optimizer's step: new scores, new masks, dead rows."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_idea._step.row_ops import known_count, narrower_mask, zero_rows
from keras_idea._step.track import Track
from keras_idea._typing import Tensor
from keras_idea.functional.importance import ema
from keras_idea.functional.masks import top_k_mask
from keras_idea.functional.width import CubicWidth


def update_scores_and_masks(
    tracks: Sequence[Track],
    sensitivities: Sequence[Tensor],
    iterations: keras.Variable | Tensor,
    catch_up_until: float,
    is_step_end: bool | Tensor = True,
) -> bool:
    """Renews scores and masks, and zeroes the weights of pruned neurons.

    Where one of the newest sensitivities is not finite, nothing was measured. Up to
    step `catch_up_until` a mask may be behind its schedule. `is_step_end` is True; or
    a bool tensor: False in the middle of an accumulated step, in which nothing changes.

    Returns False if a mask was due but there are no scores yet; never in a compiled
    step, which renews the masks each time.
    """
    all_renewed = True
    for track, new in zip(tracks, sensitivities, strict=True):
        old = track.scores.value
        # What is not finite was not measured, and leaves the score as it was.
        measured = ops.isfinite(new)
        if is_step_end is not True:
            measured = ops.logical_and(measured, is_step_end)
        scores = ema(new, old, track.ffn.state.scoring.ema_decay)
        track.scores.assign(ops.where(measured, scores, old))
    for (schedule, _), together in _by_schedule(tracks).items():
        width = _due_width(schedule, iterations, catch_up_until)
        if width is not None:
            all_renewed &= _renew_masks(together, width, is_step_end)
    for track in tracks:
        zero_rows(track.ffn.cuts(), track.mask.value)
    return all_renewed


def _by_schedule(
    tracks: Sequence[Track],
) -> dict[tuple[CubicWidth, tuple], list[Track]]:
    """The tracks that follow a schedule, by those whose masks can be made together.

    One operation on many small arrays instead of many: where nothing is compiled,
    each costs more than its arithmetic.
    """
    found: dict[tuple[CubicWidth, tuple], list[Track]] = {}
    for track in tracks:
        if track.scheduled:
            key = (track.schedule, tuple(track.mask.shape))
            found.setdefault(key, []).append(track)
    return found


def _due_width(
    schedule: CubicWidth, iterations: keras.Variable | Tensor, catch_up_until: float
) -> int | Tensor | None:
    """The neurons to keep after a step; None if no mask can have changed.

    If the width equals the number of active neurons, the mask stays as it is.
    """
    step = known_count(iterations)
    if step is None:
        return schedule(ops.cast(iterations, "int32"))
    width = schedule(step)
    return width if step <= catch_up_until or width < schedule(step - 1) else None


def _renew_masks(
    tracks: list[Track], width: int | Tensor, is_step_end: bool | Tensor
) -> bool:
    """Renews the masks of FFNs with scores; returns as `update_scores_and_masks`."""
    importance = [t.ffn.state.importance_of(t.scores.value) for t in tracks]
    if isinstance(width, int) and is_step_end is True:  # nothing is compiled
        known = [bool(ops.any(values)) for values in importance]
        for track, values, ranked in zip(tracks, importance, known, strict=True):
            if ranked:
                track.mask.assign(narrower_mask(track.mask.value, values, width))
        return all(known)
    alive = ops.stack([track.mask.value for track in tracks])
    stacked = ops.stack(importance)
    makes = ops.any(stacked, axis=tuple(range(1, len(stacked.shape))), keepdims=True)
    if is_step_end is not True:
        makes = ops.logical_and(makes, is_step_end)
    masks = ops.where(makes, top_k_mask(stacked, width, alive=alive), alive)
    for i, track in enumerate(tracks):
        track.mask.assign(masks[i])
    return not isinstance(width, int) or bool(ops.all(makes))
