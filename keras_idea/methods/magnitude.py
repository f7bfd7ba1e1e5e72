"""The baseline of many libraries: neurons go by the size of their weights."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_idea._groups.state import Scoring
from keras_idea._typing import Tensor
from keras_idea.methods.calibration import Samples
from keras_idea.methods.method import Gradients, Method


class Magnitude(Method):
    r"""Ranks neurons by the L2 norm of their present weights, in all kernels together.

    $$s_i = \sqrt{\sum_K \lVert w_i^K \rVert_2^2}$$

    Of channels it is the norm of the kernels that read them: a kernel that makes them
    has no size of its own if a normalization follows. In the callback neurons go step
    by step, as many as the cubic of `Sensitivity` says. In `shrink` it needs no data.

    Example:
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=Magnitude()
    ... )

    Source: the baseline of most pruning libraries; here of whole neurons.
    """

    name = "magnitude"
    scoring = Scoring(ema_decay=0.0)  # the present weights alone

    def score(self, ffn: Any, gradients: Gradients) -> Tensor:
        """Returns the norms before the step; see `Method.score`."""
        return _norms(ffn)

    def importance(
        self, model: keras.Model, groups: Sequence[Any], samples: Samples | None
    ) -> list[Tensor]:
        """Returns the norms; see `Method.importance`."""
        return [_norms(group) for group in groups]


def _norms(group: Any) -> Tensor:
    """The norm `(F,)`, or `(experts, F)`, of each unit's weights."""
    total: Any = 0.0
    for cut in group.scored_cuts():
        squares = ops.square(ops.cast(cut.variable.value, "float32"))
        for part in cut.split(ops.sum(squares, axis=cut.weights_axes)):
            total = total + part * cut.size  # which is the mean over what a unit has
    return ops.sqrt(total)
