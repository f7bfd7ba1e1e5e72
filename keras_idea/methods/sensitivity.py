"""IDEA Prune's own method: neurons go as their sensitivity ranks them."""

from keras_idea.functional.importance import Reduction
from keras_idea.layers.neuron_state import Scoring
from keras_idea.methods.method import Method
from keras_idea.schedules.width import CubicWidth


class Sensitivity(Method):
    r"""Importance is the moving average of `|gradient * weight|`.

    $$\tilde S_t = (1 - \lambda) |g_t w_t| + \lambda \tilde S_{t-1}$$

    Each step of the optimizer updates the scores, and the cubic says how many neurons
    stay.

    Args:
        ema_decay: float in [0, 1), the paper's lambda: the weight of the past in the
            scores. Defaults to 0.4.
        row_reduce: "mean" or "max", the paper's f1: over the weights that a neuron has
            in one matrix. "max" keeps a score of every weight. Defaults to "mean".
        matrix_reduce: "mean" or "max", the paper's f2: over the matrices up, gate and
            down. Defaults to "max".

    Raises:
        ValueError: for an argument outside its range; when `fit` begins, if a mixture
            of experts is to be scored with `row_reduce="max"`.

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

    def width_schedule(
        self,
        hidden_dim: int,
        target_dim: int,
        begin_step: int,
        prune_steps: int,
        update_every: int,
    ) -> CubicWidth:
        """The cubic by which a layer is pruned; see `Method.width_schedule`."""
        return CubicWidth(hidden_dim, target_dim, begin_step, prune_steps, update_every)
