"""Ranks neurons by their sensitivity, by the size of their weights, or by chance."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_idea._groups.state import Scoring
from keras_idea._typing import Tensor
from keras_idea._validation import check_int
from keras_idea.functional.importance import Reduction
from keras_idea.methods.calibration import Samples
from keras_idea.methods.method import Gradients, Method


class Sensitivity(Method):
    r"""Ranks neurons by the moving average of `|gradient * weight|`.

    $$\tilde S_t = (1 - \lambda) |g_t w_t| + \lambda \tilde S_{t-1}$$

    This is the paper's method and the default. Each optimizer step updates the scores,
    and a cubic says how many neurons stay.

    Args:
        ema_decay: float in [0, 1). The paper's lambda: the weight of the past in the
            scores. Defaults to 0.4.
        row_reduce: str. The paper's f1, "mean" or "max", over the weights that a neuron
            has in one matrix. "max" keeps a score for every weight. Defaults to "mean".
        matrix_reduce: str. The paper's f2, "mean" or "max", over the matrices up, gate
            and down. Defaults to "max".

    Raises:
        ValueError: If an argument is outside its range. When `fit` begins: if the model
            has a mixture of experts and `row_reduce` is "max".

    Example:
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=Sensitivity(ema_decay=0.9)
    ... )

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    name = "sensitivity"

    def __init__(
        self,
        ema_decay: float = 0.4,
        row_reduce: Reduction = "mean",
        matrix_reduce: Reduction = "max",
    ) -> None:
        self.scoring = Scoring(ema_decay, row_reduce, matrix_reduce)


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
    """Computes the norm `(F,)`, or `(experts, F)`, of each unit's weights."""
    total: Any = 0.0
    for cut in group.scored_cuts():
        squares = ops.square(ops.cast(cut.variable.value, "float32"))
        for part in cut.split(ops.sum(squares, axis=cut.weights_axes)):
            total = total + part * cut.size  # which is the mean over what a unit has
    return ops.sqrt(total)


class Random(Method):
    """Keeps neurons that are drawn uniformly, all at once at `begin_step`.

    Use it as a baseline for other methods. The draw depends only on the seed and on the
    layer's place in the model. It is the same on every backend, in `fit` and in
    `shrink`.

    Args:
        seed: int >= 0. The seed of the draw. Defaults to 0.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=Random(seed=1)
    ... )

    Source: one-shot random pruning, the baseline OSRP of IDEA Prune.
    """

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = check_int("seed", seed, minimum=0)

    def decision_step(self, begin_step: int, prune_steps: int) -> int:
        """int, `begin_step`."""
        return begin_step

    def importance(
        self, model: keras.Model, groups: Sequence[Any], samples: Samples | None
    ) -> list[np.ndarray]:
        """Draws uniform numbers for each group's units; see `Method.importance`."""
        return [
            np.random.default_rng([self.seed, group.place]).random(
                group.units_shape, "float32"
            )
            for group in groups
        ]
