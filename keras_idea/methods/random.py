"""The baseline of chance: neurons go at random."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_idea.methods.method import Decision, Job, Method
from keras_idea.validation import check_int


class Random(Method):
    """Keeps neurons that are drawn uniformly, all at once at `begin_step`.

    Use it as a baseline for other methods. The draw depends only on the seed and on the
    layer's place in the model. It is the same on every backend and in every run.

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

    def decide(self, model: keras.Model, jobs: Sequence[Job]) -> list[Decision]:
        """Returns one random mask per job; see `Method.decide`."""
        return [Decision(self._mask(job)) for job in jobs]

    def _mask(self, job: Job) -> np.ndarray:
        living = job.ffn.kept_neurons()
        generator = np.random.default_rng([self.seed, job.index])
        mask = np.zeros(tuple(job.ffn.mask.shape), "float32")
        # One row, or one an expert.
        for row, own in zip(np.atleast_2d(mask), np.atleast_2d(living), strict=True):
            row[generator.choice(own, job.target_dim, replace=False)] = 1.0
        return mask
