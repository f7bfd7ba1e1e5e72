"""The gradients of a stock KerasHub model at any weights."""

import keras
import numpy as np

from tests.support.helpers import to_numpy
from tests.support.hub_models import (
    FULL,
)

RATE = 1024.0


# Large, so that Adam does not blow float32 noise in the tiniest gradients up.
EPSILON = 1e-4


LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Gradients:
    """The gradients of a stock model at any weights."""

    def __init__(self, model):
        self.model = model
        self.model.compile(keras.optimizers.SGD(RATE), LOSS, weighted_metrics=None)
        self.variables = self.model.trainable_variables
        self.places = {id(v): i for i, v in enumerate(self.variables)}

    def at(self, weights, x, y):
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight.astype("float32"))
        before = [to_numpy(v).astype("float64") for v in self.variables]
        loss = np.ravel(self.model.train_on_batch(x, y))[0]
        after = [to_numpy(v).astype("float64") for v in self.variables]
        return [(b - a) / RATE for b, a in zip(before, after, strict=True)], loss


def sliced(value, kept, axis, packing):
    """A variable of the neurons `kept`; of a mixture of those of each expert."""
    if kept.ndim == 1:
        return np.take(value, kept, axis)
    places = kept
    if value.shape[axis] > FULL:  # two matrices
        places = {
            "halves": np.concatenate([kept, kept + FULL], axis=1),
            "pairs": np.sort(np.concatenate([2 * kept, 2 * kept + 1], axis=1)),
        }[packing]
    pairs = zip(value, places, strict=True)
    return np.stack([np.take(own, at, axis - 1) for own, at in pairs])
