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
    first: int,
    ends: bool | Tensor = True,
) -> None:
    """Renews scores and masks, and zeroes the weights of dead neurons.

    Args:
        pairs: list of (`FFN`, its `Live`).
        sensitivities: list of tensors, the newest of each FFN, shaped as its scores.
        iterations: the optimizer's, after its step.
        first: int, the first step that is followed by this.
        ends: True; or a bool tensor: False in the middle of an accumulated step, in
            which nothing changes.
    """
    for (ffn, live), new in zip(pairs, sensitivities, strict=True):
        old = live.scores.value
        scores = ema(new, old, ffn.state.ema_decay)
        if ffn.state.experts is not None:
            # One that no token came to has not been asked: it keeps its scores.
            asked = ops.any(new != 0, axis=(0, -1), keepdims=True)
            scores = ops.where(asked, scores, old)
        live.scores.assign(scores if ends is True else ops.where(ends, scores, old))
    for (schedule, _), group in _groups(pairs).items():
        width = _due_width(schedule, iterations, first)
        if width is not None:
            _renew_masks(group, width, ends)
        for ffn, live in group:
            zero_rows(ffn.cuts(), live.mask.value)


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
    schedule: CubicWidth, iterations: keras.Variable | Tensor, first: int
) -> int | Tensor | None:
    """The neurons to keep after a step; None if no mask can have changed.

    One of as many neurons as live is the one that is there.
    """
    step = known_count(iterations)
    if step is None:
        return schedule.call(ops.cast(iterations, "int32"))
    width = schedule(step)
    # Before the first step a mask may be behind.
    return width if step <= first or width < schedule(step - 1) else None


def _renew_masks(group: _Pairs, width: int | Tensor, ends: bool | Tensor) -> None:
    importance = [ffn.state.importance_of(live.scores.value) for ffn, live in group]
    if isinstance(width, int) and ends is True:  # nothing is compiled
        for (_, live), values in zip(group, importance, strict=True):
            live.mask.assign(less(live.mask.value, values, width))
        return
    alive = ops.stack([live.mask.value for _, live in group])
    masks = top_k_mask(ops.stack(importance), width, alive=alive)
    if ends is not True:
        masks = ops.where(ends, masks, alive)
    for i, (_, live) in enumerate(group):
        live.mask.assign(masks[i])
