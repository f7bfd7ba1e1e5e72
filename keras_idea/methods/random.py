"""The baseline of chance: neurons go at random."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._validation import check_int
from keras_idea.methods.calibration import Data, Samples
from keras_idea.methods.method import Method


class Random(Method):
    """Keeps neurons that are drawn uniformly, all at once at `begin_step`.

    Use it as a baseline for other methods. The draw depends only on the seed and on the
    layer's place in the model. It is the same on every backend, in `fit` and in
    `shrink`.

    Args:
        seed: int >= 0. The seed of the draw. Defaults to 0.
        data: samples or None. The model's inputs, as for `Activation`. Only `refit`
            uses them. Defaults to None.
        num_samples: int >= 1. The most samples to use. Defaults to 1024.
        batch_size: int >= 1. Samples per batch, if `data` are arrays. Defaults to 32.
        refit: bool. Whether to fit what reads the neurons that stay to the data, as
            `shrink` does with `refit=True`. It needs `data`. Defaults to False.

    Raises:
        ValueError: If an argument is outside its range.

    Example:
    >>> prune = ki.IdeaPruneCallback(
    ...     96, begin_step=500, prune_steps=250, method=Random(seed=1)
    ... )

    Source: one-shot random pruning, the baseline OSRP of IDEA Prune.
    """

    name = "random"

    def __init__(
        self,
        seed: int = 0,
        data: Data | None = None,
        num_samples: int = 1024,
        batch_size: int = 32,
        refit: bool = False,
    ) -> None:
        self.seed = check_int("seed", seed, minimum=0)
        if refit:
            self.refit_data = Samples(data, num_samples, batch_size)

    def decision_step(self, begin_step: int, prune_steps: int) -> int:
        """int, `begin_step`."""
        return begin_step

    def importance(
        self, model: keras.Model, groups: Sequence[Any], samples: Samples | None
    ) -> list[np.ndarray]:
        """Returns uniform numbers of each group's units; see `Method.importance`."""
        return [
            np.random.default_rng([self.seed, group.place]).random(
                group.units_shape, "float32"
            )
            for group in groups
        ]
