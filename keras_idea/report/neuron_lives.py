"""When which neurons of a layer lived, and how they ranked meanwhile."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class NeuronLives:
    """How the neurons of one layer ranked at each reading, till they died.

    Args:
        layer: str, the layer's name.
        steps: int array `(readings,)`, ascending: the steps at which it was read.
        levels: uint8 array `(readings, neurons)`, see `rank_levels`: 0 dead, else
            from 1 (least important) to 255 (most). Of a mixture the neurons of one
            expert stand behind those of the other, each ranked among its own.

    Example:
    >>> importance = np.array([[3.0, 2.0, 1.0], [3.0, np.nan, 1.0]])
    >>> lives = NeuronLives("ffn", np.array([5, 10]), rank_levels(importance))
    >>> lives.death_step.tolist()
    [inf, 10.0, inf]
    """

    layer: str
    steps: np.ndarray
    levels: np.ndarray

    @property
    def death_step(self) -> np.ndarray:
        """Float array `(neurons,)`: the first reading dead; inf: it lived on."""
        dead = self.levels == 0
        first = self.steps[dead.argmax(axis=0)].astype("float64")
        return np.where(dead.any(axis=0), first, np.inf)

    def sorted_levels(self, rows: int) -> np.ndarray:
        """The levels of so many of the neurons, evenly spaced in their order.

        They are sorted by the step at which they were pruned, the first on top; those
        pruned together, and those that stay, by their mean level. More rows than
        neurons repeat some.

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
