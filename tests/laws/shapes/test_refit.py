"""What reads a cut group is fitted as `numpy.linalg.lstsq` fits it, in float64."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._surgery.refit import _RIDGES
from tests.support.block_chains import WIDTH, chain
from tests.support.helpers import to_numpy

SAMPLES = 24  # of the fixture `x`


def fitted(hidden, kernel, kept, ridge, bias=None):
    """`lstsq` of the kept columns, the penalty as rows below, a bias as a column."""
    target, known = hidden @ kernel, hidden[:, kept]
    if bias is None:
        mean_square = np.square(known).sum() / len(kept)
    else:
        mean_square = np.square(known - known.mean(axis=0)).sum() / len(kept)
        known = np.c_[known, np.ones(len(known))]
    root = np.sqrt(ridge * mean_square)
    rows = root * np.eye(len(kept), known.shape[1])
    left = np.r_[known, rows]
    right = np.r_[target + (0 if bias is None else bias), root * kernel[kept]]
    return np.linalg.lstsq(left, right, rcond=None)[0]


def chosen(hidden, kernel, kept, bias=None):
    """The fit of all samples, with the ridge that is best on every fourth of them."""
    held = np.arange(len(hidden)) % 4 == 3
    seen, apart = (hidden[p].reshape(-1, hidden.shape[-1]) for p in (~held, held))
    shift = 0 if bias is None else bias

    def error(ridge):
        new = fitted(seen, kernel, kept, ridge, bias)
        known = apart[:, kept]
        known = known if bias is None else np.c_[known, np.ones(len(known))]
        return np.square(known @ new - (apart @ kernel + shift)).sum()

    errors = [error(ridge) for ridge in _RIDGES]
    best = _RIDGES[int(np.argmin(errors))]
    return fitted(hidden.reshape(-1, hidden.shape[-1]), kernel, kept, best, bias)


def hidden_of(block, x):
    return to_numpy(block.up(between(block, x))).astype("float64")


def between(block, x):
    return x + to_numpy(block.attention(x, x))


def heads_of(block, x):
    """What the output projection of a block's attention is called on, by NumPy."""
    attention = block.attention

    def projected(name):
        kernel, bias = (
            to_numpy(v).astype("float64")
            for v in getattr(attention, f"_{name}_dense").weights
        )
        return np.einsum("btd,dhf->bthf", x.astype("float64"), kernel) + bias

    q, k, v = map(projected, ("query", "key", "value"))
    k, v = (np.repeat(part, q.shape[2] // k.shape[2], axis=2) for part in (k, v))
    logits = np.einsum("bqhf,bkhf->bhqk", q, k) / np.sqrt(q.shape[-1])
    share = np.exp(logits - logits.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    return np.einsum("bhqk,bkhf->bqhf", share, v).reshape(*x.shape[:2], -1)


def test_each_layer_on_what_the_cut_model_gives_it(x):
    """Neurons of two blocks, each with a bias behind them."""
    model = chain(2)
    data = (x, np.ones((SAMPLES, 6, 5), "float32"))
    small = ki.shrink(model, {"neurons": 9}, data, refit=True, batch_size=6)
    given = x
    for place in (1, 2):
        block, new = model.layers[place], small.layers[place]
        columns = to_numpy(block.up.kernel).T.tolist()
        kept = [columns.index(c) for c in to_numpy(new.up.kernel).T.tolist()]
        kernel, bias = (to_numpy(v).astype("float64") for v in block.down.weights)
        expected = chosen(hidden_of(block, given), kernel, kept, bias)
        assert np.abs(expected[:-1] - kernel[kept]).max() > 0.05
        np.testing.assert_allclose(to_numpy(new.down.kernel), expected[:-1], atol=2e-4)
        np.testing.assert_allclose(to_numpy(new.down.bias), expected[-1], atol=2e-4)
        given = to_numpy(new(given))


def test_in_fit_it_is_what_shrink_does(x):
    """At a rate of zero; the run goes on with the fitted weights."""
    model, y = chain(1), np.zeros((SAMPLES, 6, 5), "float32")
    small = ki.shrink(model, {"neurons": 9}, x, refit=True, batch_size=6)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    method = ki.methods.Activation(x, batch_size=6, refit=True)
    prune = ki.IdeaPruneCallback(9, 2, 1, method=method)
    model.fit(x, y, batch_size=6, epochs=1, callbacks=[prune], verbose=0)
    assert [ffn.width for ffn in ki.find_ffns(model)] == [9]
    for one, other in zip(small.variables, model.variables, strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)


def test_heads_before_neurons(x):
    model = chain(1)
    targets = {"neurons": 9, "kv_groups": 1}
    small = ki.shrink(model, targets, x, method="magnitude", refit=True)
    old, new = model.layers[1], small.layers[1]
    values = to_numpy(old.attention._value_dense.kernel)
    now = to_numpy(new.attention._value_dense.kernel)[:, 0]
    stays = [np.array_equal(values[:, i], now) for i in range(2)].index(True)
    kept = np.arange(6) + 6 * stays  # two query heads of three features
    kernel, bias = (
        to_numpy(v).astype("float64") for v in old.attention._output_dense.weights
    )
    kernel = kernel.reshape(12, WIDTH)
    expected = chosen(heads_of(old, x), kernel, kept, bias)
    found = [to_numpy(v) for v in new.attention._output_dense.weights]
    np.testing.assert_allclose(found[0].reshape(6, -1), expected[:-1], atol=2e-4)
    np.testing.assert_allclose(found[1], expected[-1], atol=2e-4)
    # The FFN is fitted on what the fitted attention gives.
    hidden = to_numpy(old.up(between(new, x))).astype("float64")
    columns = to_numpy(old.up.kernel).T.tolist()
    kept = [columns.index(c) for c in to_numpy(new.up.kernel).T.tolist()]
    kernel, bias = (to_numpy(v).astype("float64") for v in old.down.weights)
    expected = chosen(hidden, kernel, kept, bias)
    np.testing.assert_allclose(to_numpy(new.down.kernel), expected[:-1], atol=2e-4)


class TestRefused:
    def test_averages_of_weights(self, x):
        model = chain(1)
        model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
        method = ki.methods.Activation(x, refit=True)
        prune = ki.IdeaPruneCallback(9, 2, 1, method=method)
        with pytest.raises(ki.KerasIdeaError, match="would not know of it"):
            model.fit(x, x[..., :5], batch_size=4, callbacks=[prune], verbose=0)
