"""Scores are kept only from when they can matter: the masks are the same."""

import math

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.callbacks.prune import session
from keras_idea.functional.importance import memory_steps
from tests.support import algorithm_reference as reference
from tests.support.helpers import residual_model, set_random_weights, to_numpy
from tests.support.kernels import kernels

BEGIN, STEPS, TARGET, TOTAL = 37, 8, 4, 48
FIRST = BEGIN - 21  # 0.4^21 = 4e-9
SEEN = session.SEEN_STEPS


class Seen(keras.callbacks.Callback):
    """Masks, and whether scores are kept, after each step."""

    def __init__(self):
        super().__init__()
        self.masks, self.scored = [], []

    def on_train_batch_end(self, batch, logs=None):
        ffns = ki.find_ffns(self.model)
        self.masks.append([to_numpy(f.mask) for f in ffns])
        self.scored.append(all(f.state.active_track is not None for f in ffns))


def fitted(data, more=(), **settings):
    model = residual_model()
    set_random_weights(model)
    weights = kernels(model)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    seen = Seen()
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off", **settings)
    x, y = data
    fit = {"batch_size": 8, "epochs": 6, "shuffle": False, "verbose": 0}
    model.fit(x, y, callbacks=[prune, *more, seen], **fit)
    return weights, seen


@pytest.fixture(params=["always", "as it pays"])
def late(request, monkeypatch):
    """bool, whether the scores begin late; by default only where nothing compiles."""
    if request.param == "always":
        monkeypatch.setattr(session, "WORTH_COMPILING", 0)
        return True
    return keras.backend.backend() == "torch"


def test_masks_equal_algorithm_1(data, late):
    weights, seen = fitted(data)
    x, y = data
    batches = [(x[i % 8 * 8 :][:8], y[i % 8 * 8 :][:8]) for i in range(TOTAL)]
    optimizer, span = reference.SGD(0.05), (TARGET, BEGIN, STEPS)
    steps = reference.run(weights, batches, optimizer, *span, 0.4, "mean", "max")
    for masks, (_, _, expected, _) in zip(seen.masks, steps, strict=True):
        for mask, right in zip(masks, expected, strict=True):
            np.testing.assert_array_equal(mask, right)
    pause = FIRST - SEEN if late else 0
    assert pause in (0, 6)
    kept = TOTAL - SEEN - pause
    assert seen.scored == SEEN * [True] + pause * [False] + kept * [True]


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.4, 0.9])
def test_what_is_forgotten_weighs_nothing(decay):
    steps = memory_steps(decay)
    assert decay**steps <= 1e-8 and (steps == 1 or decay ** (steps - 1) > 1e-8)
    assert steps == (1 if not decay else math.ceil(-8 / math.log10(decay)))
