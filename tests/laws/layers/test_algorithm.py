"""A run of the package equals Algorithm 1, step by step, on every backend."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Sensitivity
from tests.support import algorithm_reference as reference
from tests.support.dense_ffns import dense_gated, dense_ungated
from tests.support.helpers import (
    residual_model,
    set_random_weights,
    start_pruning,
    to_numpy,
)
from tests.support.kernels import kernels, living

BEGIN, STEPS, TARGET, TOTAL = 3, 8, 4, 15
GATED, UNGATED = ki.PrunableGatedFFN, ki.PrunableFFN
CASES = [
    (GATED, "sgd", "mean", "max", False),
    (GATED, "sgd", "max", "mean", False),
    (GATED, "adamw", "mean", "max", False),
    (GATED, "adamw", "max", "max", False),
    (GATED, "sgd", "mean", "mean", True),
    (GATED, "adamw", "max", "max", True),
    (UNGATED, "sgd", "max", "mean", False),
    (UNGATED, "adamw", "mean", "max", True),
    (dense_gated, "adamw", "max", "mean", False),
    (dense_gated, "sgd", "mean", "max", True),
    (dense_ungated, "adamw", "mean", "max", False),
]
# Large, so that Adam does not blow float32 noise in the tiniest gradients up.
EPSILON = 1e-4


def optimizers(name):
    """The Keras optimizer and its transcription."""
    if name == "sgd":
        return keras.optimizers.SGD(0.05), reference.SGD(0.05)
    return (
        keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=EPSILON),
        reference.AdamW(0.01, decay=0.01, epsilon=EPSILON),
    )


@pytest.mark.parametrize("ffn, optimizer, row_reduce, matrix_reduce, jit", CASES)
def test_equals_algorithm_1(data, ffn, optimizer, row_reduce, matrix_reduce, jit):
    ours, theirs = optimizers(optimizer)
    model = residual_model(ffn=ffn, activation="silu")
    set_random_weights(model)
    model.compile(ours, "mse", jit_compile=jit)
    ffns = ki.find_ffns(model)
    method = Sensitivity(row_reduce=row_reduce, matrix_reduce=matrix_reduce)
    start_pruning(model, TARGET, BEGIN, STEPS, method=method)
    x, y = data
    batches = [(x[i % 8 * 8 :][:8], y[i % 8 * 8 :][:8]) for i in range(TOTAL)]
    steps = reference.run(
        kernels(model),
        batches,
        theirs,
        TARGET,
        BEGIN,
        STEPS,
        decay=0.4,
        f1=row_reduce,
        f2=matrix_reduce,
    )
    for batch, (weights, scores, masks, loss) in zip(batches, steps, strict=True):
        assert np.isclose(model.train_on_batch(*batch), loss, rtol=1e-5)
        for ffn, score, mask in zip(ffns, scores, masks, strict=True):
            np.testing.assert_array_equal(to_numpy(ffn.mask), mask)
            if row_reduce == "mean":
                score = score.mean(axis=2)
            np.testing.assert_allclose(
                to_numpy(ffn.scores), score, rtol=1e-5, atol=1e-5 * score.max()
            )
        *ours_ffns, head = kernels(model)
        np.testing.assert_allclose(head, weights[-1], rtol=1e-5, atol=1e-5)
        for ffn, mask, expected in zip(ours_ffns, masks, weights, strict=False):
            for kernel, value in zip(living(ffn, mask), expected, strict=True):
                np.testing.assert_allclose(kernel, value, rtol=1e-5, atol=1e-5)
    assert [ffn.width for ffn in ffns] == [TARGET, TARGET]


@pytest.mark.parametrize("ffn", [GATED, UNGATED])
def test_masks_in_fit_equal_algorithm_1(data, ffn):
    """The same through `fit` and the callback, the masks read by another one."""

    class Recorder(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.masks = []

        def on_train_batch_end(self, batch, logs=None):
            self.masks.append([to_numpy(f.mask) for f in ki.find_ffns(self.model)])

    model = residual_model(ffn=ffn, activation="silu")
    set_random_weights(model)
    model.compile(keras.optimizers.SGD(0.05), "mse")
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for _ in range(2) for i in range(0, 64, 8)]
    steps = reference.run(
        kernels(model),
        batches,
        reference.SGD(0.05),
        TARGET,
        BEGIN,
        STEPS,
        decay=0.4,
        f1="mean",
        f2="max",
    )
    expected = [masks for _, _, masks, _ in steps]
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
    recorder = Recorder()
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    model.fit(x, y, callbacks=[prune, recorder], **fit)
    for ours, theirs in zip(recorder.masks, expected, strict=True):
        for mask, reference_mask in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mask, reference_mask)
