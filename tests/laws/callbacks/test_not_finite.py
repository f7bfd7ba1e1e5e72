"""Gradients and activations that are not finite, in runs that survive them.

What is not finite was not measured: it leaves scores, sums and masks as they were.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import algorithm_reference as reference
from tests.support.helpers import (
    residual_model,
    set_random_weights,
    start_pruning,
    to_numpy,
)
from tests.support.kernels import kernels, living

RATE, TARGET = 0.05, 4


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class SkipsNaN(keras.optimizers.SGD):
    """SGD in which a gradient that is not finite moves nothing."""

    def update_step(self, gradient, variable, learning_rate):
        finite = keras.ops.isfinite(gradient)
        zeros = keras.ops.zeros_like(gradient)
        gradient = keras.ops.where(finite, gradient, zeros)
        super().update_step(gradient, variable, learning_rate)


def model_with(optimizer):
    model = residual_model(activation="silu")
    set_random_weights(model)
    model.compile(optimizer, "mse")
    return model


@pytest.mark.parametrize(
    "at, bad",
    [
        pytest.param(1, np.nan, marks=pytest.mark.daily("torch", "jax", "tensorflow")),
        (9, np.inf),  # while pruning
    ],
)
def test_a_step_without_finite_gradients_leaves_scores_as_they_were(data, at, bad):
    """As Algorithm 1 in float64 of the other steps, when `at` lies before pruning.

    While pruning, the width falls at that step too, by the scores that are there.
    """
    begin, steps, total = 6, 6, 14
    model = model_with(SkipsNaN(RATE))
    ffns = ki.find_ffns(model)
    start_pruning(model, TARGET, begin, steps)
    x, y = data
    batches = [(x[i % 8 * 8 :][:8], y[i % 8 * 8 :][:8]) for i in range(total)]
    finite = [batch for i, batch in enumerate(batches, start=1) if i != at]
    shift = 1 if at <= begin else 0
    expected = reference.run(
        kernels(model),
        finite,
        reference.SGD(RATE),
        TARGET,
        begin - shift,
        steps,
        decay=0.4,
        f1="mean",
        f2="max",
    )
    for step, batch in enumerate(batches, start=1):
        if step == at:
            scores = [to_numpy(ffn.scores) for ffn in ffns]
            model.train_on_batch(batch[0], np.full_like(batch[1], bad))
            for ffn, score in zip(ffns, scores, strict=True):
                np.testing.assert_array_equal(to_numpy(ffn.scores), score)
                assert ffn.width == reference.kept(
                    step, ffn.full_dim, TARGET, begin, steps
                )
            continue
        model.train_on_batch(*batch)
        weights, _, masks, _ = next(expected)
        if step < at or shift:
            *ours, _ = kernels(model)
            for ffn, own, kernel, mask in zip(
                ffns, ours, weights[:-1], masks, strict=True
            ):
                np.testing.assert_array_equal(to_numpy(ffn.mask), mask)
                for one, other in zip(living(own, mask), kernel, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert all(np.isfinite(to_numpy(ffn.scores)).all() for ffn in ffns)
    assert [ffn.width for ffn in ffns] == [TARGET, TARGET]


def test_masks_wait_until_something_was_measured(data):
    """Pruning is over with the first step, of which nothing is known."""
    model = model_with(SkipsNaN(RATE))
    ffns = ki.find_ffns(model)
    prune = start_pruning(model, TARGET, 0, 1)
    x, y = data[0][:8], data[1][:8]
    sgd = reference.SGD(RATE)
    scored = {"decay": 0.4, "f1": "mean", "f2": "max"}
    expected = reference.run(kernels(model), [(x, y)], sgd, TARGET, -1, 1, **scored)
    model.train_on_batch(x, np.full_like(y, np.nan))
    assert [ffn.width for ffn in ffns] == [16, 12]
    model.train_on_batch(x, y)
    _, _, masks, _ = next(expected)
    for ffn, mask in zip(ffns, masks, strict=True):
        assert ffn.width == TARGET
        np.testing.assert_array_equal(to_numpy(ffn.mask), mask)
    prune.on_epoch_end(0)


def nan_batch(data, at):
    """Eight batches, of which one has inputs that are NaN."""
    x, y = (array.copy() for array in data)
    x[8 * at : 8 * at + 8] = np.nan
    return x, y


def test_samples_that_are_not_finite_are_rejected(data):
    model = model_with("sgd")
    x, _ = nan_batch(data, at=0)
    method = ki.methods.Activation(x, num_samples=32)
    prune = ki.IdeaPruneCallback(8, 2, 2, method=method)
    with pytest.raises(ValueError, match="NaN or infinite"):
        model.fit(*data, callbacks=[prune], verbose=0, batch_size=8)
