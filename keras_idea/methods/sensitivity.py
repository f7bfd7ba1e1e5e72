"""IDEA Prune's own method: neurons go as their sensitivity ranks them."""

from keras_idea.schedules.width import CubicWidth


class Sensitivity:
    """Importance is the moving average of `|gradient * weight|`.

    The scores live in the layer and are updated inside the compiled train step;
    what is left to do here is to set the cubic width schedule.

    Example:
    >>> IdeaPruneCallback(96, begin_step=500, prune_steps=250, method=Sensitivity())

    Source: IDEA Prune (arXiv 2503.05920), Algorithm 1.
    """

    name = "sensitivity"

    def width_schedule(
        self, hidden_dim, target_dim, begin_step, prune_steps, update_every
    ):
        """The schedule by which a layer of `hidden_dim` neurons is pruned.

        Args:
            hidden_dim: int, neurons of the enlarged layer.
            target_dim: int, neurons to keep in the end.
            begin_step: int, the last optimizer step at full width.
            prune_steps: int, steps from full width to the target.
            update_every: int, steps between two masks.

        Returns:
            `CubicWidth`.
        """
        return CubicWidth(hidden_dim, target_dim, begin_step, prune_steps, update_every)
