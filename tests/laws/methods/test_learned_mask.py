"""Learned masks: step by step against NumPy, and what they refuse."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import LearnedMask
from keras_idea.methods.method import Job
from keras_idea.surgery.probes import attach_probes
from tests.support import method_reference as reference
from tests.support.helpers import (
    residual_model,
    set_random_weights,
    to_numpy,
)

STEPS, SHARE, RATE = 8, 0.25, 0.05
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}


def learning_model(targets=(4, 5), remat=None):
    """A compiled model with masks that begin to learn, and its probes."""
    inputs = x = keras.Input((5, 8))
    for index, hidden_dim in enumerate((16, 12)):
        with keras.RematScope(remat):
            ffn = ki.PrunableGatedFFN(hidden_dim, name=f"ffn_{index}")
        x = x + ffn(x)
    head = keras.layers.Dense(1, use_bias=False, name="head")
    model = keras.Model(inputs, head(x))
    set_random_weights(model)
    model.compile(keras.optimizers.SGD(RATE), "mse")
    ffns = ki.find_ffns(model)
    method = LearnedMask(seed=1, warmup_share=SHARE)
    pairs = zip(ffns, targets, strict=True)
    probes = method.make_probes(
        [Job(ffn, i, target, 0, STEPS) for i, (ffn, target) in enumerate(pairs)]
    )
    attach_probes(model, zip(ffns, probes, strict=True))
    method.connect(probes)
    return model, probes


def kernels(model):
    ffns = [[to_numpy(k) for k in ffn.kernels] for ffn in ki.find_ffns(model)]
    return [*ffns, to_numpy(model.get_layer("head").kernel)]


def transcription(model, probes, batches):
    weights = [
        [k.astype("float64") for k in ffn] if isinstance(ffn, list) else ffn
        for ffn in kernels(model)
    ]
    return reference.run(
        weights,
        [to_numpy(probe.log_alpha).astype("float64") for probe in probes],
        [probe.stream for probe in probes],
        batches,
        [probe.target_dim for probe in probes],
        STEPS,
        SHARE,
        RATE,
    )


def test_equals_the_transcription_step_by_step(data):
    """Masks, multipliers, weights and losses, in float32 against float64."""
    x, y = data
    batches = [(x[i % 8 * 8 :][:8], y[i % 8 * 8 :][:8]) for i in range(STEPS)]
    model, probes = learning_model()
    steps = transcription(model, probes, batches)
    for batch, (weights, masks, multipliers, loss) in zip(batches, steps, strict=True):
        assert np.isclose(model.train_on_batch(*batch), loss, rtol=1e-6)
        for probe, log_alpha in zip(probes, masks, strict=True):
            np.testing.assert_allclose(to_numpy(probe.log_alpha), log_alpha, atol=1e-5)
        np.testing.assert_allclose(
            to_numpy(probes[0].multipliers.values), multipliers, atol=1e-5
        )
        *ffns, head = kernels(model)
        np.testing.assert_allclose(head, weights[-1], atol=2e-6)
        for ffn, expected in zip(ffns, weights, strict=False):
            for kernel, value in zip(ffn, expected, strict=True):
                np.testing.assert_allclose(kernel, value, atol=2e-6)
    assert probes[1].multipliers is None  # one pair for both layers


FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}  # 8 steps an epoch
BEGIN, STEPS = 9, 6


def test_a_run_that_is_stopped_leaves_no_probe_behind(data):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 3

    model = residual_model((16,))
    model.compile(keras.optimizers.AdamW(0.01), "mse", run_eagerly=True)
    prune = ki.IdeaPruneCallback(4, 2, 6, method="learned_mask")
    model.fit(*data, callbacks=[prune, Stop()], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert (ffn.width, ffn.state.probe) == (16, None)
    assert len(model.optimizer._trainable_variables) == len(model.trainable_variables)
    narrow = ki.compact(model)
    for _ in range(2):
        np.testing.assert_allclose(
            model.train_on_batch(*data), narrow.train_on_batch(*data), rtol=1e-4
        )


def refused(method, data, message, begin=BEGIN, target=4, hidden=16, optimizer="sgd"):
    model = residual_model((hidden,))
    model.compile(optimizer, "mse")
    prune = ki.IdeaPruneCallback(target, begin, STEPS, method=method)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, epochs=6, callbacks=[prune], **FIT)
    assert ki.find_ffns(model)[0].state.probe is None
    assert int(model.optimizer.iterations) == 0


def test_too_much_sparsity_for_a_learned_mask(data):
    message = r"ffn_0 from 64 to 3 neurons.*exceed 0.953. Keep at least 4"
    refused("learned_mask", data, message, target=3, hidden=64)


@pytest.mark.parametrize("method", ["activation", "learned_mask"])
def test_gradient_accumulation(method, data):
    optimizer = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
    refused(method, data, "gradient_accumulation_steps=2", optimizer=optimizer)
