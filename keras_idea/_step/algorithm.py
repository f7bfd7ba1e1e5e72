"""Algorithm 1 in one step: what the gradients tell; new scores, masks and zeros."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_idea._graph.group import FFN
from keras_idea._groups.cut import Cut
from keras_idea._groups.kinds import KINDS
from keras_idea._keras.optimizer_variables import (
    accumulated_gradient,
    apply_count,
    variable_key,
)
from keras_idea._step.replicas import sums_over_replicas
from keras_idea._step.row_ops import known_count, mean_sensitivity, zero_rows
from keras_idea._typing import Tensor
from keras_idea.functional.importance import ema, sensitivity
from keras_idea.functional.masks import top_k_mask
from keras_idea.functional.width import CubicWidth


@dataclasses.dataclass(eq=False)
class Track:
    """One group in the course of a pruning run.

    Attributes:
        ffn: `FFN` handle.
        schedule: `CubicWidth`, its width over the steps; None: it keeps all units.
        scheduled: bool, whether its mask follows the schedule at each step.
        began: int, the active units when the run began.
        scores, mask: variables of the optimizer, the newest while a pruner is at work.
    """

    ffn: FFN
    schedule: Any = None
    scheduled: bool = False
    began: int = dataclasses.field(init=False)
    scores: keras.Variable = None
    mask: keras.Variable = None

    def __post_init__(self) -> None:
        self.began = self.ffn.width


class StepGradients:
    """The gradients of FFNs that one step of an optimizer is made with.

    Attributes:
        is_step_end: True, or under accumulation a bool tensor: whether this call of
            `apply` ends a step.
        completed_steps: int or int tensor, the steps that this call ends.
        first_ready: list of the gradient that is ready first, the last FFN's.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        grads: Sequence[Tensor | None],
        variables: Iterable[keras.Variable],
        ffns: Iterable[FFN],
    ) -> None:
        self._optimizer, self._grads = optimizer, grads
        self._count = optimizer.gradient_accumulation_steps
        self.is_step_end, self.completed_steps = True, 1
        if self._count:
            self.is_step_end = (apply_count(optimizer).value + 1) % self._count == 0
            self.completed_steps = ops.cast(self.is_step_end, "int32")
        # Lists that do not match are the optimizer's to refuse.
        pairs = enumerate(zip(variables, grads, strict=False))
        self._places = {
            variable_key(optimizer, variable): place
            for place, (variable, gradient) in pairs
            if gradient is not None
        }
        keys = [variable_key(optimizer, k) for ffn in ffns for k in ffn.kernels]
        keys = [key for key in keys if key in self._places]
        sums = sums_over_replicas([grads[self._places[key]] for key in keys])
        self._sums = dict(zip(keys, sums, strict=True))
        self.first_ready = list(self._sums.values())[-1:]

    def place_of(self, variable: keras.Variable) -> int | None:
        """The place of a variable's gradient among those given; None: it has none."""
        return self._places.get(variable_key(self._optimizer, variable))

    def of(self, variable: keras.Variable) -> Tensor:
        """The gradient of a variable; zeros where the loss does not depend on it."""
        gradient = self._of_call(variable)
        if gradient is None:
            return ops.zeros_like(variable.value)
        if self._count:
            so_far = accumulated_gradient(self._optimizer, variable).value
            gradient = (gradient + so_far) / self._count
        return gradient

    def _of_call(self, variable: keras.Variable) -> Tensor | None:
        """The gradient that this call of `apply` was given, unscaled; None: none."""
        place, scale = self.place_of(variable), self._optimizer.loss_scale_factor
        if place is None:
            return None
        key = variable_key(self._optimizer, variable)
        if key not in self._sums:  # it is no kernel
            [self._sums[key]] = sums_over_replicas([self._grads[place]])
        return self._sums[key] if scale is None else self._sums[key] / scale

    def by_units(self, cuts: Sequence[Cut], weights: Mapping[int, Tensor]) -> Tensor:
        """The gradient of the loss by a factor of each unit: `(F,)` or `(E, F)`.

        It is the sum of gradient * weight over the unit's entries; of an accumulated
        step the part that this call adds. `weights` are by the `id` of their variable.
        """
        total: Tensor = 0.0
        for cut in cuts:
            gradient = self._of_call(cut.variable)
            if gradient is not None:
                part = _summed(cut, weights[id(cut.variable)], gradient)
                total = total + part / (self._count or 1)
        return total

    def sensitivities(self, ffn: FFN) -> Tensor:
        """The newest sensitivities of an FFN, shaped as its scores.

        NaN where nothing was measured: for an expert that no token came to. Of a
        channel, `|sum of gradient * weight|` over all that reads it: how much the loss
        changes, to first order, without it. What moves a channel in one place of a
        kernel may move it back in another.
        """
        if KINDS[ffn.kind].by_readers:
            cuts = ffn.scored_cuts()
            parts = [_summed(c, c.variable.value, self.of(c.variable)) for c in cuts]
            return ops.abs(sum(parts, start=0.0))
        state, rows = ffn.state, []
        for place, cut in enumerate(ffn.kernel_cuts()):
            given = cut.variable.value, self.of(cut.variable)
            if state.scoring.row_reduce == "mean":
                mean = mean_sensitivity(*given, cut.weights_axes)
                # Weights that were cut out of a row were zeros in its mean.
                if state.row_lengths and cut.weights != state.row_lengths[place]:
                    mean = mean * (cut.weights / state.row_lengths[place])
                rows += cut.split(mean)
                continue
            values = cut.rows(sensitivity(*given))
            missing = state._scores.shape[-1] - values.shape[-1]
            rows.append(ops.pad(values, ((0, 0), (0, missing))) if missing else values)
        sensitivities = ops.stack(rows)
        if not ffn.state.of_experts:
            return sensitivities
        asked = ops.any(sensitivities != 0, axis=(0, -1), keepdims=True)
        return ops.where(asked, sensitivities, float("nan"))


def _summed(cut: Cut, weights: Tensor, gradient: Tensor) -> Tensor:
    """The sum of gradient * weight over each unit's entries in one kernel."""
    product = ops.cast(weights, "float32") * ops.cast(gradient, "float32")
    [mean] = cut.split(ops.sum(product, axis=cut.weights_axes))
    return mean * cut.size  # which is the mean over a unit's entries


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
    together: dict[tuple[CubicWidth, tuple], list[Track]] = {}
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
        width = schedule(ops.cast(iterations, "int32") if step is None else step)
        if step is not None and width == shape[-1]:
            continue
        alive = ops.stack([track.mask.value for track in alike])
        scored = [t.ffn.state.importance_of(t.scores.value) for t in alike]
        importance = ops.stack(scored)
        axes = tuple(range(1, len(importance.shape)))
        renewed = ops.any(importance, axis=axes, keepdims=True)
        if is_step_end is not True:
            renewed = ops.logical_and(renewed, is_step_end)
        masks = ops.where(renewed, top_k_mask(importance, width, alive), alive)
        for i, track in enumerate(alike):
            track.mask.assign(masks[i])
    for track in tracks:
        zero_rows(track.ffn.cuts(), track.mask.value)
