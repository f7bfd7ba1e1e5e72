"""What Algorithm 1 does after an optimizer's step: new scores, new masks, zeros."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_idea._finding.find import FFN
from keras_idea._step.row_ops import known_count, narrower_mask, zero_rows
from keras_idea._typing import Tensor
from keras_idea.functional.importance import ema
from keras_idea.functional.masks import top_k_mask
from keras_idea.functional.width import WidthSchedule


@dataclasses.dataclass(eq=False)
class Track:
    """One group in the course of a pruning run.

    Attributes:
        ffn: `FFN` handle.
        schedule: `WidthSchedule`, its width over the steps; None: it keeps all units.
        scheduled: bool, whether its mask follows the schedule at each step; else it
            is only scored.
        began: int, the active units when the run began.
        scores: variable of the optimizer, shaped as the state's scores: the newest, as
            long as a pruner is at work.
        mask: variable of the optimizer, shaped as the state's mask; likewise.
    """

    ffn: FFN
    schedule: Any = None
    scheduled: bool = False
    began: int = dataclasses.field(init=False)
    scores: keras.Variable = None
    mask: keras.Variable = None

    def __post_init__(self) -> None:
        self.began = self.ffn.width


def update_scores_and_masks(
    tracks: Sequence[Track],
    sensitivities: Sequence[Tensor],
    iterations: keras.Variable | Tensor,
    is_step_end: bool | Tensor = True,
) -> None:
    """Renews scores and masks, and zeroes the weights of pruned neurons.

    `is_step_end` is True; or a bool tensor: False in the middle of an accumulated step,
    in which nothing changes. A mask waits until there are scores.
    """
    together: dict[tuple[WidthSchedule, tuple], list[Track]] = {}
    for track, new in zip(tracks, sensitivities, strict=True):
        old = track.scores.value
        # What is not finite was not measured, and leaves the score as it was.
        measured = ops.isfinite(new)
        if is_step_end is not True:
            measured = ops.logical_and(measured, is_step_end)
        scores = ema(new, old, track.ffn.state.scoring.ema_decay)
        track.scores.assign(ops.where(measured, scores, old))
        if track.scheduled:
            # One operation on many small arrays instead of many: where nothing is
            # compiled, each costs more than its arithmetic.
            key = track.schedule, tuple(track.mask.shape)
            together.setdefault(key, []).append(track)
    step = known_count(iterations)
    for (schedule, shape), alike in together.items():
        if step is None:
            width = schedule.call(ops.cast(iterations, "int32"))
            _renew_masks(alike, width, is_step_end)
        elif (count := schedule(step)) < shape[-1]:
            _renew_masks(alike, count, is_step_end)
    for track in tracks:
        zero_rows(track.ffn.cuts(), track.mask.value)


def _renew_masks(
    tracks: list[Track], width: int | Tensor, is_step_end: bool | Tensor
) -> None:
    """Keeps the most important units of each track, as many as `width`."""
    importance = [t.ffn.state.importance_of(t.scores.value) for t in tracks]
    if isinstance(width, int) and is_step_end is True:  # nothing is compiled
        known = [bool(ops.any(values)) for values in importance]
        for track, values, ranked in zip(tracks, importance, known, strict=True):
            if ranked:
                track.mask.assign(narrower_mask(track.mask.value, values, width))
        return
    alive = ops.stack([track.mask.value for track in tracks])
    stacked = ops.stack(importance)
    makes = ops.any(stacked, axis=tuple(range(1, len(stacked.shape))), keepdims=True)
    if is_step_end is not True:
        makes = ops.logical_and(makes, is_step_end)
    masks = ops.where(makes, top_k_mask(stacked, width, alive=alive), alive)
    for i, track in enumerate(tracks):
        track.mask.assign(masks[i])
