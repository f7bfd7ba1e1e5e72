"""Learned masks: step by step against NumPy, and what they come to."""

import itertools

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import LearnedMask, Random
from keras_idea.methods.method import Job
from keras_idea.surgery.probes import attach_probes
from tests.support import method_reference as reference
from tests.support.helpers import (
    LossRecorder,
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


def test_rematerialization_draws_the_same(data):
    jit = keras.backend.backend() == "tensorflow" or "auto"
    losses = []
    for mode in (None, "full"):
        model, probes = learning_model(remat=mode)
        model.compile(keras.optimizers.SGD(RATE), "mse", jit_compile=jit)
        losses.append([model.train_on_batch(*data) for _ in range(3)])
        losses[-1].extend(to_numpy(probes[1].log_alpha))
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_evaluation_uses_the_deterministic_mask(data):
    """Exactly the target's neurons, softly; and no draw, however often."""
    model, probes = learning_model()
    rng = np.random.default_rng(0)
    for probe in probes:
        probe.log_alpha.assign(rng.normal(size=probe.hidden_dim, scale=3))
    expected = data[0].astype("float64")
    for ffn, probe in zip(ki.find_ffns(model), probes, strict=True):
        up, gate, down = (to_numpy(k).astype("float64") for k in ffn.kernels)
        z = reference.mask(to_numpy(probe.log_alpha), probe.target_dim)
        assert (z > 0).sum() == probe.target_dim
        a = expected @ up
        expected = expected + (a / (1 + np.exp(-a)) * (expected @ gate) * z) @ down
    expected = expected @ to_numpy(model.get_layer("head").kernel)
    for _ in range(2):
        np.testing.assert_allclose(
            model.predict(data[0], verbose=0), expected, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("use_bias", [False, True])
def test_the_soft_values_are_folded_exactly(data, use_bias):
    """What the model computed with its masks it computes without, and compacted."""
    before = []

    class Before(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                before.append(self.model.predict(data[0], verbose=0))

    model = residual_model((16,), use_bias=use_bias)
    model.compile(keras.optimizers.AdamW(0.01), "mse", run_eagerly=True)
    prune = ki.IdeaPruneCallback(5, 2, 14, method="learned_mask", compact="off")
    model.fit(*data, epochs=2, callbacks=[Before(), prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert (ffn.width, ffn.state.probe) == (5, None)
    for narrow in (model, ki.compact(model)):
        np.testing.assert_allclose(
            narrow.predict(data[0], verbose=0), before[0], atol=2e-5
        )


def problem(neurons=32, important=8, **compile_arguments):
    """Two FFNs most of whose neurons hardly matter, and what they compute."""
    rng = np.random.default_rng(0)
    model = residual_model((neurons, neurons))
    for ffn in ki.find_ffns(model):
        up, gate, down = (rng.normal(size=k.shape, scale=0.5) for k in ffn.kernels)
        down[rng.permutation(neurons)[important:]] *= 0.05
        for kernel, value in zip(ffn.kernels, (up, gate, down), strict=True):
            kernel.assign(value)
    head = model.get_layer("head").kernel
    head.assign(rng.normal(size=head.shape))
    x = rng.normal(size=(64, 5, 8)).astype("float32")
    y = model.predict(x, verbose=0)
    head.assign(to_numpy(head) / y.std())
    model.compile(keras.optimizers.SGD(0.0), "mse", **compile_arguments)
    return model, x, y / y.std()


class Watch(keras.callbacks.Callback):
    """The state of the masks after every third step."""

    def __init__(self):
        super().__init__()
        self.sparsity, self.target, self.multipliers = [], [], []

    def on_train_batch_end(self, batch, logs=None):
        probes = [ffn.state.probe for ffn in ki.find_ffns(self.model)]
        if probes[0] is not None and batch % 3 == 0:
            self.sparsity.append([float(probe.sparsity()) for probe in probes])
            self.target.append(float(probes[0].target_sparsity(float(batch))))
            self.multipliers.append(to_numpy(probes[0].multipliers.values))


def test_the_masks_learn():
    """With the weights held still: which neurons matter, and the sparsity due."""
    steps, target = 150, 10
    model, x, y = problem()
    watch = Watch()
    prune = ki.IdeaPruneCallback(target, 1, steps, method="learned_mask", compact="off")
    endless = ((x, y) for _ in itertools.count())
    model.fit(endless, steps_per_epoch=steps + 1, callbacks=[watch, prune], verbose=0)
    sparsity, multipliers = np.array(watch.sparsity), np.array(watch.multipliers)
    lags = (sparsity.mean(axis=1) < np.array(watch.target)).nonzero()[0][1:4]
    # While it lags the constraint pulls harder: the linear multiplier falls (it
    # rewards sparsity), the quadratic one rises.
    assert (np.diff(multipliers[lags, 0]) < 0).all()
    assert (np.diff(multipliers[:, 1]) >= 0).all() and multipliers[-1, 1] > 10
    np.testing.assert_allclose(sparsity[-1], 1 - target / 32, atol=0.01)
    learned = model.evaluate(x, y, verbose=0)
    for seed in range(2):
        other, _, _ = problem(run_eagerly=True)
        prune = ki.IdeaPruneCallback(target, 0, 1, method=Random(seed), compact="off")
        other.fit(x, y, batch_size=64, epochs=1, verbose=0, callbacks=[prune])
        assert learned < other.evaluate(x, y, verbose=0) / 5


@pytest.mark.parametrize("method", ["learned_mask", "activation"])
def test_a_resumed_run_ends_as_the_straight_one(method, data, tmp_path):
    """Saved while the probes are in it, loaded, and gone on with."""
    begin, steps = (3, 10) if method == "learned_mask" else (13, 1)

    class Save(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                self.model.save(tmp_path / "half.keras")

    def prune():
        return ki.IdeaPruneCallback(4, begin, steps, method=method)

    model = residual_model((16, 12))
    model.compile(keras.optimizers.AdamW(0.01), "mse", run_eagerly=True)
    straight, resumed = LossRecorder(), LossRecorder()
    model.fit(*data, epochs=2, callbacks=[prune(), Save(), straight], **FIT)
    half = keras.models.load_model(tmp_path / "half.keras")
    probes = [ffn.state.probe for ffn in ki.find_ffns(half)]
    assert None not in probes
    if method == "learned_mask":
        with pytest.raises(ValueError, match="in the middle of learning its mask"):
            half.train_on_batch(*data)
        with pytest.raises(ValueError, match="still has the probe.*compact"):
            ki.compact(half)
    half.fit(*data, callbacks=[prune(), resumed], **FIT)
    np.testing.assert_allclose(resumed.losses, straight.losses[8:], rtol=1e-4)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(half)] == [4, 4]
