"""What Algorithm 1 does after an optimizer's step: new scores, new masks, dead rows."""

from collections.abc import Sequence
from typing import TypeAlias

import keras
from keras import ops

from keras_idea.functional.importance import ema
from keras_idea.functional.masks import top_k_mask
from keras_idea.schedules.width import CubicWidth
from keras_idea.surgery.find import FFN
from keras_idea.surgery.live import Live
from keras_idea.surgery.row_ops import known_count, less, zero_rows
from keras_idea.typing import Tensor

_Pairs: TypeAlias = list[tuple[FFN, Live]]


def renew(
    pairs: _Pairs,
    sensitivities: Sequence[Tensor],
    iterations: keras.Variable | Tensor,
    first: float,
    ends: bool | Tensor = True,
) -> bool:
    """Renews scores and masks, and zeroes the weights of dead neurons.

    Args:
        pairs: list of (`FFN`, its `Live`).
        sensitivities: list of tensors, the newest of each FFN, shaped as its scores;
            where one is not finite, nothing was measured.
        iterations: the optimizer's, after its step.
        first: int or inf: up to this step a mask may lie behind its schedule.
        ends: True; or a bool tensor: False in the middle of an accumulated step, in
            which nothing changes.

    Returns:
        bool, False if a mask was due and not made, as nothing is known of the neurons
        yet. Always True in a compiled step, which makes the masks anew each time.
    """
    made = True
    for (ffn, live), new in zip(pairs, sensitivities, strict=True):
        old = live.scores.value
        # What is not finite was not measured, and leaves the score as it was.
        measured = ops.isfinite(new)
        if ends is not True:
            measured = ops.logical_and(measured, ends)
        scores = ema(new, old, ffn.state.scoring.ema_decay)
        live.scores.assign(ops.where(measured, scores, old))
    for (schedule, _), group in _groups(pairs).items():
        width = _due_width(schedule, iterations, first)
        if width is not None:
            made &= _renew_masks(group, width, ends)
    for ffn, live in pairs:
        # One that only keeps score may mask itself.
        if live.schedule is not None or not ffn.masks_itself:
            zero_rows(ffn.cuts(), live.mask.value)
    return made


def _groups(pairs: _Pairs) -> dict[tuple[CubicWidth, tuple], _Pairs]:
    """The FFNs that have a schedule, by those whose masks can be made together.

    One operation on many small arrays instead of many: where nothing is compiled,
    each costs more than its arithmetic.
    """
    groups: dict[tuple[CubicWidth, tuple], _Pairs] = {}
    for ffn, live in pairs:
        if live.schedule is not None:
            key = (live.schedule, tuple(live.mask.shape))
            groups.setdefault(key, []).append((ffn, live))
    return groups


def _due_width(
    schedule: CubicWidth, iterations: keras.Variable | Tensor, first: float
) -> int | Tensor | None:
    """The neurons to keep after a step; None if no mask can have changed.

    One of as many neurons as live is the one that is there.
    """
    step = known_count(iterations)
    if step is None:
        return schedule.call(ops.cast(iterations, "int32"))
    width = schedule(step)
    return width if step <= first or width < schedule(step - 1) else None


def _renew_masks(group: _Pairs, width: int | Tensor, ends: bool | Tensor) -> bool:
    """Makes the masks of FFNs of whose neurons something is known; see `renew`."""
    importance = [ffn.state.importance_of(live.scores.value) for ffn, live in group]
    if isinstance(width, int) and ends is True:  # nothing is compiled
        known = [bool(ops.any(values)) for values in importance]
        for (_, live), values, ranked in zip(group, importance, known, strict=True):
            if ranked:
                live.mask.assign(less(live.mask.value, values, width))
        return all(known)
    alive = ops.stack([live.mask.value for _, live in group])
    stacked = ops.stack(importance)
    makes = ops.any(stacked, axis=tuple(range(1, len(stacked.shape))), keepdims=True)
    if ends is not True:
        makes = ops.logical_and(makes, ends)
    masks = ops.where(makes, top_k_mask(stacked, width, alive=alive), alive)
    for i, (_, live) in enumerate(group):
        live.mask.assign(masks[i])
    return not isinstance(width, int) or bool(ops.all(makes))
