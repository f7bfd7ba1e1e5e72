"""IDEA Prune's own method: neurons go as their sensitivity ranks them."""

from keras_idea.methods.method import Method
from keras_idea.schedules.width import CubicWidth


class Sensitivity(Method):
    """Importance is the moving average of `|gradient * weight|`.

    The scores live in the layer and are updated inside the compiled train step;
    what is left to do here is to set the cubic width schedule.

    Example:
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=Sensitivity()
    ... )

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    name = "sensitivity"

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
