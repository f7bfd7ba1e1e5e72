"""What reads a cut group is fitted as `numpy.linalg.lstsq` fits it, in float64."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.functional.least_squares import output_error, refit_rows
from keras_idea.surgery.refit import _RIDGES
from tests.support.block_chains import WIDTH, chain
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm
from tests.support.older_keras import needs_3_15

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


class TestRows:
    rng = np.random.default_rng(0)
    hidden, kernel = rng.standard_normal((50, 7)), rng.standard_normal((7, 3))
    hidden[:, 5] = hidden[:, 1] + 0.1 * hidden[:, 5]
    gram, kept = hidden.T @ hidden, np.array([0, 1, 4])

    @pytest.mark.parametrize("ridge", [1e-6, 1e-2, 10.0])
    def test_equal_lstsq(self, ridge):
        new = refit_rows(self.gram, self.kernel, self.kept, ridge)
        expected = fitted(self.hidden, self.kernel, self.kept, ridge)
        np.testing.assert_allclose(new, expected, rtol=1e-10)

    def test_the_error_is_that_of_the_outputs(self):
        new = refit_rows(self.gram, self.kernel, self.kept, 1e-3)
        outputs = self.hidden @ self.kernel - self.hidden[:, self.kept] @ new
        error = output_error(self.gram, self.kernel, self.kept)(new)
        np.testing.assert_allclose(error, np.square(outputs).sum(), rtol=1e-10)


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


@pytest.mark.parametrize("method", ["activation", "sensitivity"])
def test_each_layer_on_what_the_cut_model_gives_it(x, method):
    """Neurons of two blocks, each with a bias behind them."""
    model = chain(2)
    data = (x, np.ones((SAMPLES, 6, 5), "float32"))
    small = ki.shrink(model, {"neurons": 9}, data, method, refit=True, batch_size=6)
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


class TestOtherModels:
    @needs_3_15  # of KerasHub's Mistral
    def test_padding_counts_for_nothing(self):
        """The cut model is the same, whatever the padded tokens are."""
        model, rng = tiny_lm("mistral", num_key_value_heads=2), np.random.default_rng(1)
        tokens = rng.integers(1, 32, (SAMPLES, 8))
        mask = np.arange(8) < rng.integers(3, 8, (SAMPLES, 1))
        made = []
        for filled in (0, 7):
            data = {
                "token_ids": np.where(mask, tokens, filled),
                "padding_mask": mask.astype("int32"),
            }
            targets = {"neurons": 0.5, "kv_groups": 1}
            small = ki.shrink(model, targets, data, method="magnitude", refit=True)
            made.append([to_numpy(v) for v in small.variables])
        plain = ki.shrink(model, targets, method="magnitude")
        moved = 0
        for one, other, cut in zip(*made, plain.variables, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
            moved += not np.allclose(one, to_numpy(cut), atol=1e-4)
        assert moved == 2 * len(plain.backbone.transformer_layers)

    def test_own_layers_with_biases(self, x):
        inputs = keras.Input((6, WIDTH))
        ffn = ki.PrunableGatedFFN(16, use_bias=True)
        model = keras.Model(inputs, ffn(inputs))
        rng = np.random.default_rng(5)
        for weight in model.trainable_variables:
            weight.assign(0.4 * rng.standard_normal(weight.shape))
        small = ki.shrink(model, {"neurons": 8}, x, refit=True)
        up, up_bias, gate, gate_bias, down, bias = (
            to_numpy(getattr(ffn, f"{name}_{kind}")).astype("float64")
            for name in ("up", "gate", "down")
            for kind in ("kernel", "bias")
        )
        activated = x @ up + up_bias
        activated /= 1 + np.exp(-activated)
        new = small.layers[1]
        columns = up.astype("float32").T.tolist()
        kept = [columns.index(c) for c in to_numpy(new.up_kernel).T.tolist()]
        expected = chosen(activated * (x @ gate + gate_bias), down, kept, bias)
        np.testing.assert_allclose(to_numpy(new.down_kernel), expected[:-1], atol=2e-4)
        np.testing.assert_allclose(to_numpy(new.down_bias), expected[-1], atol=2e-4)

    def test_what_adds_nothing_is_left_as_it_is(self, x):
        """Of 12 equal neurons 6 do the work of all."""
        inputs = keras.Input((6, WIDTH))
        up = keras.layers.Dense(12, "relu", kernel_initializer="ones")
        outputs = keras.layers.Dense(2, use_bias=False)(up(inputs))
        model = keras.Model(inputs, outputs)
        small = ki.shrink(model, {"neurons": 6}, x, refit=True)
        found, expected = to_numpy(small(x)), to_numpy(model(x))
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


class TestRefused:
    @pytest.mark.parametrize(
        "targets, data, words",
        [
            ({"neurons": 9}, lambda x: None, "fits layers to `data`"),
            ({"blocks": 1}, lambda x: x, "has none of them"),
            ({"neurons": 9}, lambda x: x[:1], "too few to fit"),
            ({"neurons": 9}, lambda x: x[:3], "0 to choose the ridge"),
            (
                {"neurons": 9},
                lambda x: np.where(x == x.max(), np.nan, x),
                "not all finite",
            ),
        ],
    )
    def test_data_that_do_not_do(self, x, targets, data, words):
        with pytest.raises(ki.KerasIdeaError, match=words):
            ki.shrink(chain(2), targets, data(x), method="magnitude", refit=True)

    def test_without_data(self):
        for method in (ki.methods.Activation, ki.methods.Random):
            with pytest.raises(ki.KerasIdeaError, match="fits layers to `data`"):
                method(refit=True)

    def test_data_that_can_be_read_once(self, x):
        with pytest.raises(ki.KerasIdeaError, match="more than once"):
            ki.shrink(chain(1), {"neurons": 9}, iter([x]), refit=True)

    def test_averages_of_weights(self, x):
        model = chain(1)
        model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
        method = ki.methods.Random(data=x, refit=True)
        prune = ki.IdeaPruneCallback(9, 2, 1, method=method)
        with pytest.raises(ki.KerasIdeaError, match="would not know of it"):
            model.fit(x, x[..., :5], batch_size=4, callbacks=[prune], verbose=0)

    def test_experts(self):
        tokens = np.ones((8, 6), "int32")
        data = {"token_ids": tokens, "padding_mask": tokens}
        with pytest.raises(ki.KerasIdeaError, match="no single layer is called on"):
            ki.shrink(
                tiny_lm("mixtral"),
                {"neurons": 0.5},
                data,
                method="magnitude",
                refit=True,
            )
