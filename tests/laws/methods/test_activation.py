"""Activations in a model: gathered in training, and exactly from samples."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.methods import Activation
from keras_idea.surgery.probes import attach_probes, detach_probes
from tests.support.helpers import residual_model, set_random_weights, to_numpy
from tests.support.method_reference import AGGREGATIONS
from tests.support.older_keras import needs_3_15

TOKENS = 6


def silu(x):
    return x / (1 + np.exp(-x))


def hidden_of(model, x):
    """The hidden activations of each FFN of a residual model, in float64 NumPy."""
    found = []
    x = x.astype("float64")
    for ffn in ki.find_ffns(model):
        up, gate, down = (to_numpy(k).astype("float64") for k in ffn.kernels)
        found.append(silu(x @ up) * (x @ gate))
        x = x + found[-1] @ down
    return found


def language_model(masked=False, remat=False):
    """Token ids, embedding, two FFNs; `mask_zero` or a padding mask as an input."""
    ids = keras.Input((TOKENS,), dtype="int32", name="token_ids")
    x = keras.layers.Embedding(11, 8, mask_zero=masked, name="embedding")(ids)
    for index in range(2):
        with keras.RematScope("full" if remat else None):
            ffn = ki.PrunableGatedFFN(16, name=f"ffn_{index}")
        x = keras.layers.Add()([x, ffn(x)])  # which passes a mask on
    outputs = keras.layers.Dense(11)(x)
    if masked:
        return keras.Model(ids, outputs)
    mask = keras.Input((TOKENS,), dtype="bool", name="padding_mask")
    return keras.Model({"token_ids": ids, "padding_mask": mask}, outputs)


@pytest.fixture
def tokens():
    """Nine sequences of ids from 1 on, padded with 0, and their mask."""
    rng = np.random.default_rng(0)
    mask = np.arange(TOKENS) < rng.integers(1, TOKENS + 1, 9)[:, None]
    return rng.integers(1, 11, (9, TOKENS)) * mask, mask


def importance(model, data, **arguments):
    """The importance of every FFN's neurons by `data`."""
    method = Activation(data, **{"num_samples": 1000, **arguments})
    return list(map(to_numpy, method.importance(model, ki.find_ffns(model), None)))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_exact_statistics_against_numpy(data, aggregation):
    """All samples; the first 50, in uneven batches; one at a time; as batches."""
    model = residual_model()
    set_random_weights(model)
    x = data[0]
    expected = [AGGREGATIONS[aggregation](z) for z in hidden_of(model, x)]
    fifty = [AGGREGATIONS[aggregation](z) for z in hidden_of(model, x[:50])]
    cases = [
        (importance(model, x, aggregation=aggregation), expected),
        (importance(model, x, aggregation=aggregation, num_samples=50), fifty),
        (importance(model, x, aggregation=aggregation, batch_size=1), expected),
        (importance(model, iter([x[:40], (x[40:], 0)]), aggregation=aggregation),) * 2,
    ]
    for found, theirs in [*cases[:3], (cases[3][0], expected)]:
        for one, other in zip(found, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5)
    assert all(ffn.state.probe is None for ffn in ki.find_ffns(model))


def test_weighed_by_the_spans_of_the_weights(data):
    """Beside NumPy; `shrink` keeps the largest, by the method and by hand."""
    model = residual_model()
    set_random_weights(model)
    x = data[0]
    found = importance(model, x, by_weights=True)
    for ffn, hidden, one in zip(
        ki.find_ffns(model), hidden_of(model, x), found, strict=True
    ):
        up, gate, down = (to_numpy(k).astype("float64") for k in ffn.kernels)
        spans = [k.max(1) + abs(k.min(1)) for k in (up.T, gate.T, down)]
        total = sum(span / span.max() for span in spans)
        expected = AGGREGATIONS["paper"](hidden) * total
        np.testing.assert_allclose(one, expected, rtol=2e-5)
        assert np.argsort(expected).tolist() != np.argsort(expected / total).tolist()
    method = Activation(by_weights=True)
    small = ki.shrink(model, {"neurons": 0.5}, x, method=method)
    for ffn, narrow, one in zip(
        ki.find_ffns(model), ki.find_ffns(small), found, strict=True
    ):
        kept = np.sort(np.argsort(-one, kind="stable")[: narrow.hidden_dim])
        kernel = to_numpy(ffn.kernels[0])[:, kept]
        np.testing.assert_array_equal(to_numpy(narrow.kernels[0]), kernel)


def channels_read_by(how):
    """Six channels, read at all their places by a flat layer or by a convolution."""
    image = keras.Input((6, 6, 2))
    x = keras.layers.Conv2D(6, 3, activation="relu")(image)
    if how == "flat":
        x = keras.layers.Dense(3)(keras.layers.Flatten()(x))
    else:
        x = keras.layers.Flatten()(keras.layers.Conv2D(3, 4)(x))
    return keras.Model(image, x)


@pytest.mark.parametrize("how", ["flat", "convolution"])
def test_the_span_of_a_unit_is_that_of_all_its_weights(how):
    """A channel has 4 x 4 entries of a flat kernel, and one of a convolution's."""
    model = channels_read_by(how)
    rng = np.random.default_rng(4)
    made, bias, kernel, last = (rng.normal(size=v.shape) for v in model.weights)
    model.set_weights([made, bias, kernel**3, last])
    x = rng.normal(size=(8, 6, 6, 2)).astype("float32")
    groups = ki.find_groups(model, ["channels"])
    plain, weighed = (
        to_numpy(Activation(x, by_weights=by).importance(model, groups, None)[0])
        for by in (False, True)
    )
    if how == "flat":
        kernel = kernel.reshape(4, 4, 6, 3)
    ours = np.moveaxis(kernel**3, 2, 0).reshape(6, -1)
    spans = ours.max(1) + abs(ours.min(1))
    np.testing.assert_allclose(weighed, plain * spans / spans.max(), rtol=2e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_cannot_rank_are_refused(bad, data):
    """In training too, whoever spoilt them."""
    model = residual_model()
    model.compile(keras.optimizers.SGD(0.0), "mse")

    class Spoil(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                ffn = ki.find_ffns(self.model)[1]
                ffn.kernels[2].assign(np.full(ffn.kernels[2].shape, bad))

    prune = ki.IdeaPruneCallback(4, 4, 1, method=Activation(by_weights=True))
    with pytest.raises(ValueError, match="cannot rank them.*Received: 12 such"):
        model.fit(*data, batch_size=8, verbose=0, callbacks=[Spoil(), prune])


@needs_3_15
@pytest.mark.parametrize("kind", ["dict", "explicit", "mask_zero", "remat"])
def test_padding_does_not_count(tokens, kind):
    """The same importance as from the sequences without their padding."""
    ids, mask = tokens
    model = language_model(
        masked=kind in ("explicit", "mask_zero"), remat=kind == "remat"
    )
    data, arguments = {"token_ids": ids, "padding_mask": mask}, {}
    if kind == "explicit":
        data, arguments = ids, {"padding_mask": mask}
    if kind == "mask_zero":
        data = ids
    found = importance(model, data, batch_size=4, **arguments)
    embedded = to_numpy(model.get_layer("embedding").embeddings)[ids]
    for hidden, one in zip(hidden_of(model, embedded), found, strict=True):
        real = [z[m] for z, m in zip(hidden, mask, strict=True)]
        np.testing.assert_allclose(one, AGGREGATIONS["paper"](real), rtol=2e-5)


def gathered(model, batches, num_samples, begin_step, aggregation="paper", fit=None):
    """What the probes of a model have gathered after some training steps."""
    jobs = [_Job(ffn, begin_step) for ffn in ki.find_ffns(model)]
    method = Activation(num_samples=num_samples, aggregation=aggregation)
    probes = method.make_probes(jobs)
    attach_probes(model, [(j.ffn, p) for j, p in zip(jobs, probes, strict=True)])
    for batch in batches:
        model.train_on_batch(*batch)
    return [probe.statistics() for probe in probes]


class _Job:
    def __init__(self, ffn, begin_step):
        self.ffn, self.begin_step = ffn, begin_step


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_gathered_statistics_against_numpy(data, aggregation):
    """With a rate of 0 the weights stand still, and gathering is exact."""
    model = residual_model()
    set_random_weights(model)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x, y = data
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 48, 8)]
    # Twenty samples take three batches: those of steps 4 to 6.
    statistics = gathered(model, batches, 20, 6, aggregation)
    hidden = hidden_of(model, x[24:48])
    for (sums, samples), z in zip(statistics, hidden, strict=True):
        assert samples == 24
        found = ki.functional.importance_of_sums(sums, samples, aggregation)
        np.testing.assert_allclose(
            to_numpy(found), AGGREGATIONS[aggregation](z), rtol=2e-5
        )
    detach_probes(model, ki.find_ffns(model))
    assert model.train_on_batch(x, y) > 0


@needs_3_15
def test_gathering_leaves_out_what_the_loss_does_not_see(tokens):
    """Padding that sample weights take out of the loss; wherever the mask is given."""
    ids, mask = tokens
    model = language_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.0), loss)
    batch = ({"token_ids": ids, "padding_mask": mask}, ids, mask.astype("float32"))
    statistics = gathered(model, [batch], 9, 1)
    embedded = to_numpy(model.get_layer("embedding").embeddings)[ids]
    for hidden, (sums, n) in zip(hidden_of(model, embedded), statistics, strict=True):
        real = [z[m] for z, m in zip(hidden, mask, strict=True)]
        np.testing.assert_allclose(sums / n, AGGREGATIONS["paper"](real), rtol=2e-5)


def test_the_mask_keeps_the_largest(data):
    """Through the callback: the exact importance at begin_step decides."""
    model = residual_model((16,))
    set_random_weights(model)
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    (hidden,) = hidden_of(model, data[0])
    largest = np.sort(np.argsort(AGGREGATIONS["minitron"](hidden))[-5:])
    for samples in (data[0], None):
        method = Activation(samples, num_samples=64, aggregation="minitron")
        prune = ki.IdeaPruneCallback(5, 8, 1, method=method, compact="off")
        model.fit(*data, batch_size=8, epochs=2, callbacks=[prune], verbose=0)
        (ffn,) = ki.find_ffns(model)
        np.testing.assert_array_equal(ffn.kept_neurons(), largest)
        ffn.mask.assign(np.ones(16))
        set_random_weights(model)  # the rows of the masked were zeroed
        model.optimizer.iterations.assign(0)


def test_the_model_is_left_as_it_was(data):
    model = residual_model((16,))
    model.compile("adam", "mse")
    model.train_on_batch(*data)
    before = [to_numpy(v) for v in [*model.variables, *model.optimizer.variables]]
    importance(model, data[0])
    after = [to_numpy(v) for v in [*model.variables, *model.optimizer.variables]]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    model.train_on_batch(*data)


@pytest.mark.parametrize("samples", [[], np.zeros((0, 5, 8), "float32")])
def test_no_samples_are_told(data, samples):
    model = residual_model((16,))
    model.compile("sgd", "mse", run_eagerly=True)
    prune = ki.IdeaPruneCallback(4, 2, 1, method=Activation(samples))
    with pytest.raises(ValueError, match="data hold no sample"):
        model.fit(*data, batch_size=8, callbacks=[prune], verbose=0)


def test_an_ffn_that_no_sample_reaches():
    class TwoWays(keras.Model):
        def __init__(self):
            super().__init__()
            self.used, self.idle = ki.GatedFFN(4), ki.GatedFFN(4)

        def build(self, shape):
            self.used.build(shape)
            self.idle.build(shape)

        def call(self, x):
            return self.used(x)

    model = TwoWays()
    model.build((None, 3))
    with pytest.raises(ValueError, match="do not reach .*method='sensitivity'"):
        importance(model, np.ones((2, 3), "float32"))
