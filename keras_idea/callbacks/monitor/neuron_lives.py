"""When which neurons of a layer lived, and how they ranked meanwhile."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class NeuronLives:
    """Holds the ranks of one layer's neurons at each reading, until they are pruned.

    Args:
        layer: str. The name of the layer.
        steps: int array `(readings,)`. The steps of the readings, ascending.
        levels: uint8 array `(readings, neurons)`. 0 is pruned; active neurons have 1
            (least important) to 255 (most). See `rank_levels`. The neurons of a
            mixture's experts follow one another, ranked per expert.
        kind: str. "neurons" or "kv_groups". Defaults to "neurons".

    Example:
    >>> importance = np.array([[3.0, 2.0, 1.0], [3.0, np.nan, 1.0]])
    >>> lives = NeuronLives("ffn", np.array([5, 10]), rank_levels(importance))
    >>> lives.death_step.tolist()
    [inf, 10.0, inf]
    """

    layer: str
    steps: np.ndarray
    levels: np.ndarray
    kind: str = "neurons"

    @property
    def death_step(self) -> np.ndarray:
        """Float array `(neurons,)`: the first reading pruned; inf: never pruned."""
        dead = self.levels == 0
        first = self.steps[dead.argmax(axis=0)].astype("float64")
        return np.where(dead.any(axis=0), first, np.inf)

    def reading_at(self, steps: np.ndarray) -> np.ndarray:
        """Int array: the reading shown at each step.

        A reading reaches back to the one before it; the last one also reaches forward.
        """
        return np.minimum(np.searchsorted(self.steps, steps), len(self.steps) - 1)

    def sorted_levels(self, rows: int) -> np.ndarray:
        """Returns the levels of `rows` neurons, evenly spaced in their order.

        Neurons are sorted by the step at which they were pruned, the first on top.
        Those pruned together, and those that stay, are sorted by their mean level. If
        `rows` is more than the neurons, some repeat.

        Returns:
            uint8 array `(rows, readings)`.
        """
        order = np.lexsort((self.levels.mean(axis=0), self.death_step))
        places = np.linspace(0, len(order) - 1, rows).round().astype(int)
        return self.levels[:, order[places]].T


def rank_levels(importance: np.ndarray) -> np.ndarray:
    """Ranks neurons by their importance among the living, in 255 levels.

    Args:
        importance: float array `(..., hidden_dim)`; NaN where a neuron is dead.

    Returns:
        uint8 array of the same shape: 0 for the dead, else from 1 to 255.

    Example:
    >>> rank_levels(np.array([3.0, np.nan, 1.0])).tolist()
    [255, 0, 1]
    """
    living = ~np.isnan(importance)
    # Finite, so that the dead alone come last.
    values = np.where(living, np.nan_to_num(importance), np.inf)
    rank = values.argsort(axis=-1, kind="stable").argsort(axis=-1)
    most = np.maximum(living.sum(axis=-1, keepdims=True) - 1, 1)
    return np.where(living, 1 + (254 * rank) // most, 0).astype("uint8")
