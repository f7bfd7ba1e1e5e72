"""However a model computes its gradients, Algorithm 1 sees them, or the run stops."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import PruningStopped
from tests.support import algorithm_reference as reference
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import LossRecorder, to_numpy
from tests.support.ways_to_train import (
    CALLS,
    FIT,
    Clipped,
    ClippedByGlobalNorm,
    model_of,
)

BEGIN, STEPS, TARGET, RATE, LEARNING_RATE = 3, 9, 4, 1024.0, 0.05


class Masks(keras.callbacks.Callback):
    """The mask after every step, by the neurons' first numbers."""

    def __init__(self):
        super().__init__()
        self.masks = []

    def on_train_batch_end(self, batch, logs=None):
        (ffn,) = ki.find_ffns(self.model)
        mask = np.zeros(ffn.full_dim)
        mask[ffn.original_indices[ffn.kept_neurons()]] = 1.0
        self.masks.append(mask)


def algorithm_1(twin, data, steps):
    """Masks after each step, and the last weights, by the twin's gradients."""
    variables = twin.trainable_variables
    weights = [to_numpy(v).astype("float64") for v in variables]
    names = [v.path.split("/")[-1] for v in variables]
    up, gate, down = (names.index(f"{n}_kernel") for n in ("up", "gate", "down"))
    scores, mask, masks = np.zeros((3, 16)), np.ones(16), []
    twin.compile(keras.optimizers.SGD(RATE), "mse")
    x, y = data
    for t in range(1, steps + 1):
        rows = slice((t - 1) % 8 * 8, (t - 1) % 8 * 8 + 8)
        for variable, weight in zip(variables, weights, strict=True):
            variable.assign(weight.astype("float32"))
        before = [to_numpy(v).astype("float64") for v in variables]
        twin.train_on_batch(x[rows], y[rows])
        after = [to_numpy(v).astype("float64") for v in variables]
        gradients = [(b - a) / RATE for b, a in zip(before, after, strict=True)]
        newest = [np.abs(g * w) for g, w in zip(gradients, weights, strict=True)]
        rows = [newest[up].mean(0), newest[gate].mean(0), newest[down].mean(1)]
        scores = 0.6 * np.stack(rows) + 0.4 * scores
        best = np.argsort(-scores.max(axis=0), kind="stable")
        best = [k for k in best if mask[k]]
        keep = reference.kept(t, 16, TARGET, BEGIN, STEPS)
        mask = np.isin(np.arange(16), best[:keep]).astype("float64")
        weights = [
            w - LEARNING_RATE * g for w, g in zip(weights, gradients, strict=True)
        ]
        weights[up], weights[gate] = weights[up] * mask, weights[gate] * mask
        weights[down] = weights[down] * mask[:, None]
        masks.append(mask)
    return masks, weights, mask


def assert_equals_algorithm_1(data, compact, **kwargs):
    model, twin = (model_of(c, **kwargs) for c in (ki.PrunableGatedFFN, ki.GatedFFN))
    model.compile(keras.optimizers.SGD(LEARNING_RATE), "mse")
    watch = Masks()
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact=compact)
    history = model.fit(*data, epochs=2, callbacks=[prune, watch], **FIT).history
    masks, weights, mask = algorithm_1(twin, data, 16)
    np.testing.assert_array_equal(watch.masks, masks)
    (ffn,) = ki.find_ffns(model)
    assert history["width"] == [masks[7].sum(), masks[15].sum()]
    kept = np.flatnonzero(mask)
    assert ffn.width == len(kept) == TARGET
    for variable, weight in zip(model.trainable_variables, weights, strict=True):
        axis = {"up_kernel": 1, "gate_kernel": 1, "down_kernel": 0}.get(
            variable.path.split("/")[-1]
        )
        value = to_numpy(variable)
        if axis is not None:
            weight = np.take(weight, kept, axis)
            if compact == "off":
                value = np.take(value, kept, axis)
        np.testing.assert_allclose(value, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.daily("torch", "jax")
@pytest.mark.parametrize("call", [name for name in CALLS if name != "once"])
def test_however_it_is_called(call, data):
    """Its sensitivity is that of the weight, whose gradient is the calls' sum."""
    assert_equals_algorithm_1(data, "end", call=CALLS[call])


@pytest.mark.parametrize("cls", [Clipped, ClippedByGlobalNorm])
def test_in_a_custom_train_step_that_clips(cls, data):
    assert_equals_algorithm_1(data, "end", cls=cls)


def test_accumulated_gradients_are_scored_by_their_mean(data):
    """Two micro-batches of 4 are one of 8, to the last mask and score."""
    results = []
    for size, count in ((8, None), (4, 2)):
        model = model_of(ki.PrunableGatedFFN)
        optimizer = keras.optimizers.SGD(0.05, gradient_accumulation_steps=count)
        model.compile(optimizer, "mse")
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS, compact="off")
        fit = {"batch_size": size, "shuffle": False, "verbose": 0}
        model.fit(*data, epochs=2, callbacks=[prune], **fit)
        (ffn,) = ki.find_ffns(model)
        results.append([to_numpy(v) for v in (ffn.mask, ffn.scores, *ffn.kernels)])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-7)


class Elsewhere(Clipped):
    """A train step whose weights another optimizer trains."""

    def train_step(self, *arguments):
        mine, (self.optimizer,) = self.optimizer, self.others
        try:
            return super().train_step(*arguments)
        finally:
            self.optimizer = mine

    def _jax_step(self, state, data):
        trainable, resting, slots, metrics = state
        others = [v.value for v in self.others[0].variables]
        logs, state = super()._jax_step((trainable, resting, others, metrics), data)
        return logs, (*state[:2], slots, metrics)


class Revives(keras.callbacks.Callback):
    """Gives pruned neurons weights again, as another optimizer would."""

    def on_train_batch_end(self, batch, logs=None):
        (ffn,) = ki.find_ffns(self.model)
        for kernel in ffn.kernels:
            kernel.assign(keras.ops.ones(kernel.shape))


def test_pruned_neurons_that_have_weights_again_stop_the_run(data):
    model = model_of(dense_gated)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 2, 40)
    with pytest.raises(PruningStopped, match="again"):
        model.fit(*data, epochs=9, callbacks=[Revives(), prune], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == 16


class Around(Clipped):
    """A train step that takes the optimizer's steps past its instance."""

    def train_step(self, *arguments):
        apply = vars(self.optimizer).pop("apply", None)
        try:
            return super().train_step(*arguments)
        finally:
            if apply is not None:
                self.optimizer.apply = apply


def test_an_optimizer_that_is_gone_round_stops_the_run(data):
    """At the first epoch's end, before or in pruning, with nothing cut."""
    model = model_of(ki.PrunableGatedFFN, cls=Around)
    model.compile("sgd", "mse")
    prune = ki.IdeaPruneCallback(TARGET, 2, 10)
    with pytest.raises(PruningStopped, match="saw 0"):
        model.fit(*data, epochs=10, steps_per_epoch=2, callbacks=[prune], **FIT)
    (ffn,) = ki.find_ffns(model)
    assert ffn.hidden_dim == ffn.width == 16 and "apply" not in vars(model.optimizer)


@pytest.mark.daily("torch", "jax")
def test_weights_that_something_else_trains_stop_the_run(data):
    model = model_of(ki.PrunableGatedFFN, cls=Elsewhere)
    model.compile("sgd", "mse")
    model.others = (keras.optimizers.SGD(0.01),)  # no attribute that has a name
    model.others[0].build(model.trainable_variables)
    prune, epochs = ki.IdeaPruneCallback(TARGET, 2, 6), LossRecorder()
    with pytest.raises(PruningStopped, match="took 0"):
        model.fit(*data, epochs=9, callbacks=[epochs, prune], **FIT)
    assert len(epochs.losses) == 8
    (ffn,) = ki.find_ffns(model)
    assert ffn.hidden_dim == ffn.width == 16


@pytest.mark.daily("torch", "jax", "tensorflow")
def test_a_branch_without_a_loss_stops_the_run(data):
    model = model_of(ki.PrunableGatedFFN, branch=True)
    model.compile("sgd", loss=["mse", None])
    x, y = data
    prune, steps = ki.IdeaPruneCallback(TARGET, 2, 12), LossRecorder()
    with pytest.raises(PruningStopped, match="side"):
        model.fit(x, [y, y], epochs=9, callbacks=[steps, prune], **FIT)
    assert len(steps.losses) <= 16
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [16, 16]
