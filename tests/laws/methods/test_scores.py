"""One importance: what a method measures, in a callback and in `shrink`."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_idea as ki
from keras_idea._groups.state import Scoring
from keras_idea.functional.width import CubicWidth
from keras_idea.methods import Magnitude, Method
from tests.support.helpers import to_numpy

F, BATCH = 12, 4


class Squares(Method):
    """The mean squared gradient of each kernel, and of the first one's bias too."""

    name = "squares"
    scoring = Scoring(ema_decay=0.5, matrix_reduce="mean")

    def score(self, ffn, gradients):
        up, down = map(gradients.of, ffn.kernels)
        bias = gradients.of(ffn.layers[0].bias)
        of_up = ops.mean(ops.square(up), axis=0) + ops.square(bias)
        return ops.stack([of_up, ops.mean(ops.square(down), axis=1)])


@pytest.fixture
def samples():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(10, 5)).astype("float32")
    return x, rng.normal(size=(10, 3)).astype("float32")


def network(rate=0.0, use_bias=False):
    keras.utils.set_random_seed(2)
    layers = [keras.layers.Dense(F, "relu", use_bias=use_bias)]
    layers += [keras.layers.Dense(3, use_bias=False)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def kernels(model):
    up, down = model.layers
    return to_numpy(up.kernel).astype("float64"), to_numpy(down.kernel).astype(float)


def gradients(up, down, x, y, bias=0.0):
    """Of the mean squared error, for up, down and the bias of up, in float64."""
    z = x.astype("float64") @ up + bias
    hidden = np.maximum(z, 0)
    error = 2 * (hidden @ down - y) / y.size
    of_hidden = (error @ down.T) * (z > 0)
    return x.T @ of_hidden, hidden.T @ error, of_hidden.sum(0)


def kept_of(model, small):
    """Which neurons of a model another one still has."""
    up, narrow = kernels(model)[0], kernels(small)[0]
    return [int(np.flatnonzero((up == c[:, None]).all(0))[0]) for c in narrow.T]


def largest(values, k):
    return sorted(np.argsort(-values, kind="stable")[:k].tolist())


def test_shrink_by_sensitivity_against_numpy(samples):
    """The mean over batches, the last one smaller; the model stays as it is."""
    model = network()
    up, down = kernels(model)
    rows = []
    for at in range(0, 10, BATCH):
        g_up, g_down, _ = gradients(up, down, *(a[at : at + BATCH] for a in samples))
        rows.append([abs(g_up * up).mean(0), abs(g_down * down).mean(1)])
    expected = largest(np.mean(rows, axis=0).max(0), 5)
    small = ki.shrink(model, {"neurons": 5}, samples, "sensitivity", batch_size=BATCH)
    assert kept_of(model, small) == expected
    batches = [tuple(a[i : i + BATCH] for a in samples) for i in range(0, 10, BATCH)]
    small = ki.shrink(model, {"neurons": 5}, batches, ki.methods.Sensitivity())
    assert kept_of(model, small) == expected
    np.testing.assert_array_equal(kernels(model)[0], up)
    assert ki.find_ffns(model)[0].held_state is None and "apply" not in vars(
        model.optimizer
    )
    # Some other neurons if not all samples count.
    first = ki.shrink(model, {"neurons": 5}, samples, "sensitivity", num_samples=2)
    g_up, g_down, _ = gradients(up, down, *(a[:2] for a in samples))
    rows = [abs(g_up * up).mean(0), abs(g_down * down).mean(1)]
    assert kept_of(model, first) == largest(np.max(rows, axis=0), 5) != expected


def biased(samples):
    """A model with a bias, and what `Squares` measures of a batch, in float64."""
    x, y = samples
    model, bias = network(use_bias=True), np.linspace(-1, 1, F)
    model.layers[0].bias.assign(bias)
    up, down = kernels(model)

    def measured(at, alive=1.0):
        batch = x[at : at + BATCH], y[at : at + BATCH]
        weights = up * alive, (down.T * alive).T
        g_up, g_down, g_bias = gradients(*weights, *batch, bias * alive)
        return np.array([(g_up**2).mean(0) + g_bias**2, (g_down**2).mean(1)])

    return model, measured


def test_a_users_score_in_the_compiled_step(samples):
    """Its moving average over two steps, against NumPy."""
    x, y = samples
    model, measured = biased(samples)
    # By the first step's scores some neurons go, and so the second one's are others.
    before = 0.5 * measured(0)
    first = largest(before.mean(0), CubicWidth(F, 5, 0, 2)(1))
    alive = np.isin(np.arange(F), first)
    score = 0.5 * measured(BATCH, alive) + 0.5 * before
    prune = ki.IdeaPruneCallback(5, 0, 2, method=Squares(), compact="off")
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    model.fit(x[:8], y[:8], callbacks=[prune], **fit)
    [ffn] = ki.find_ffns(model)
    np.testing.assert_allclose(to_numpy(ffn.scores)[:, first], score[:, first], 1e-4)
    left = np.where(alive, score.mean(0), -1.0)
    assert np.flatnonzero(to_numpy(ffn.mask)).tolist() == largest(left, 5)


def test_magnitude_follows_the_weights_as_they_change(samples):
    """In the callback each step by the weights before it; in `shrink` by the same."""
    x, y = samples
    model = network(rate=0.3)
    up, down = kernels(model)
    assert kept_of(model, ki.shrink(model, {"neurons": 5}, method="magnitude")) == (
        largest((up**2).sum(0) + (down**2).sum(1), 5)
    )
    schedule, alive = CubicWidth(F, 5, 0, 4), np.ones(F, bool)
    for step in range(1, 5):
        norms = np.where(alive, (up**2).sum(0) + (down**2).sum(1), -1.0)
        g_up, g_down, _ = gradients(up, down, x, y)
        up, down = up - 0.3 * alive * g_up, down - 0.3 * (alive * g_down.T).T
        alive = np.isin(np.arange(F), largest(norms, schedule(step)))
        up, down = up * alive, (down.T * alive).T
    prune = ki.IdeaPruneCallback(5, 0, 4, method=Magnitude(), compact="off")
    model.fit(x, y, batch_size=10, epochs=4, callbacks=[prune], verbose=0)
    [ffn] = ki.find_ffns(model)
    np.testing.assert_array_equal(to_numpy(ffn.mask), alive)
    np.testing.assert_allclose(kernels(model)[1], down, atol=1e-5)


class TestRefused:
    def shrunk(self, model, data, method):
        return ki.shrink(model, {"neurons": 5}, data, method)

    def test_shapes_that_are_not_its_neurons(self, samples):
        model = network()

        class Wrong(Squares):
            def score(self, ffn, gradients):
                return ops.ones((3, F))

        prune = ki.IdeaPruneCallback(5, 0, 1, method=Wrong())
        with pytest.raises(ValueError, match=r"\(12,\) or \(2, 12\). Received.*3, 12"):
            model.fit(*samples, callbacks=[prune], verbose=0)
