"""IDEA Prune's own method: neurons go as their sensitivity ranks them."""

from keras_idea._groups.state import Scoring
from keras_idea.functional.importance import Reduction
from keras_idea.methods.method import Method


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
