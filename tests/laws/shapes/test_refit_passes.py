"""A refit's passes: how often they call a layer, and what they look at."""

import collections
import functools

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.laws.shapes.test_refit import chosen
from tests.support.block_chains import WIDTH, Block, chain
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm

BATCH, BATCHES = 6, 4  # of the fixture `x`
CALLS = collections.Counter()
rng = np.random.default_rng(0)


@keras.saving.register_keras_serializable(package="refit")
class Counted(Block):
    """A block that counts its calls on the data."""

    def call(self, x):
        if x.shape[0] == BATCH and not isinstance(x, keras.KerasTensor):
            CALLS[self.name] += 1
        return super().call(x)


def stacked(kind, blocks):
    """Blocks in a row; or each in a model of its own, in a model."""
    parts = [Counted(name=f"block_{i}") for i in range(blocks)]
    if kind == "models in a model":
        inputs = [keras.Input((6, WIDTH)) for _ in parts]
        pairs = zip(inputs, parts, strict=True)
        parts = [keras.Model(i, part(i), name=f"m_{part.name}") for i, part in pairs]
    if kind == "sequential":
        return keras.Sequential([keras.Input((6, WIDTH)), *parts])
    x = inputs = keras.Input((6, WIDTH))
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


def test_too_few_samples_are_refused_before_a_layer_is_fitted(x):
    """After one pass, of the first batch."""
    CALLS.clear()
    part = inputs = keras.Input((1, WIDTH))
    for i in range(3):
        part = Counted(name=f"block_{i}")(part)
    model = keras.Model(inputs, part)
    with pytest.raises(ki.KerasIdeaError, match="keeps 9 rows, and there are 5 tokens"):
        ki.shrink(model, {"neurons": 9}, x[:BATCH, :1], "magnitude", refit=True)
    assert CALLS == {f"block_{i}": 1 for i in range(3)}


@pytest.mark.parametrize(
    "kind, targets",
    [
        ("functional", {"neurons": 9}),
        ("sequential", {"neurons": 9}),
        ("models in a model", {"neurons": 9}),
        ("functional", {"neurons": 9, "kv_groups": 1}),
    ],
)
def test_a_layer_is_called_no_more_often_in_a_deeper_model(x, kind, targets):
    """On each batch once, and once for each group in it; on one for their order."""
    for blocks in (1, 3):
        CALLS.clear()
        model = stacked(kind, blocks)
        ki.shrink(model, targets, x, "magnitude", refit=True, batch_size=BATCH)
        calls = [CALLS[f"block_{i}"] for i in range(blocks)]
        groups = len(targets)
        expected = [1 + BATCHES * (1 + groups)] * (blocks - 1) + [1 + BATCHES * groups]
        assert calls == expected


def test_a_block_of_keras_hub_is_called_twice(monkeypatch):
    """On each batch, however deep the model is: the last one is not called again."""
    lm = tiny_lm("mistral", num_layers=3)
    kind = type(lm.backbone.transformer_layers[0])
    call, calls = kind.call, collections.Counter()

    @functools.wraps(call)
    def counted(self, x, *args, **kwargs):
        if x.shape[0] == BATCH and not isinstance(x, keras.KerasTensor):
            calls[self.name] += 1
        return call(self, x, *args, **kwargs)

    monkeypatch.setattr(kind, "call", counted)
    tokens = rng.integers(1, 32, (BATCH * BATCHES, 8))
    data = {"token_ids": tokens, "padding_mask": np.ones_like(tokens)}
    ki.shrink(lm, {"neurons": 0.5}, data, "magnitude", refit=True, batch_size=BATCH)
    assert list(calls.values()) == [1 + 2 * BATCHES, 1 + 2 * BATCHES, 1 + BATCHES]


def float64(layer):
    return [to_numpy(v).astype("float64") for v in layer.weights]


def kept_columns(old, new):
    columns = to_numpy(old.kernel).T.tolist()
    return [columns.index(column) for column in to_numpy(new.kernel).T.tolist()]


def test_a_graph_with_several_tensors_between_its_layers(x):
    """All by NumPy in float64, from the wide weights on."""
    layers = keras.layers
    up = [layers.Dense(14, "relu", name=f"up_{i}") for i in range(4)]
    down = [layers.Dense(WIDTH, name=f"down_{i}") for i in range(4)]
    one, two = keras.Input((6, WIDTH), name="one"), keras.Input((6, WIDTH), name="two")
    inner = keras.Input((6, WIDTH))
    inner = keras.Model(inner, [down[1](up[1](inner)), inner * 2.0], name="inner")
    h0 = down[0](up[0](one)) + two
    h1, twice = inner(h0)
    h2 = down[2](up[2](h1 - one))
    h3 = down[3](up[3](h2 * 0.1 + h0 + twice))
    model = keras.Model([one, two], {"early": h0, "late": h3 - two})
    for weight in model.trainable_variables:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    data = {"one": x, "two": x[::-1].copy()}
    small = ki.shrink(model, {"neurons": 8}, data, "magnitude", refit=True)
    found = [part for part in small._flatten_layers() if part.name[-2] == "_"]
    found = {part.name: part for part in found}

    def ffn(place, given):
        (kernel, shift), (reads, bias) = float64(up[place]), float64(down[place])
        kept = kept_columns(up[place], found[f"up_{place}"])
        hidden = np.maximum(given @ kernel + shift, 0)
        new = chosen(hidden, reads, kept, bias)
        assert np.abs(new[:-1] - reads[kept]).max() > 0.05
        kernel, bias = (to_numpy(v) for v in found[f"down_{place}"].weights)
        np.testing.assert_allclose(kernel, new[:-1], atol=5e-4)
        np.testing.assert_allclose(bias, new[-1], atol=5e-4)
        return hidden[..., kept] @ new[:-1] + new[-1]

    one, two = (data[name].astype("float64") for name in ("one", "two"))
    h0 = ffn(0, one) + two
    h1, twice = ffn(1, h0), h0 * 2.0
    h2 = ffn(2, h1 - one)
    ffn(3, h2 * 0.1 + h0 + twice)


def test_a_mask_that_attention_takes_off_its_input():
    """An FFN is fitted on what the masked attention before it gives."""
    tokens = rng.integers(1, 30, (24, 6)) * (np.arange(6) < 4)
    inputs = keras.Input((6,), dtype="int32")
    h = keras.layers.Embedding(30, WIDTH, mask_zero=True)(inputs)
    h = h + keras.layers.MultiHeadAttention(2, 4, name="attention")(h, h)
    h = keras.layers.LayerNormalization(name="norm")(h)
    up = keras.layers.Dense(20, "relu", name="up")
    down = keras.layers.Dense(WIDTH, name="down")
    model = keras.Model(inputs, down(up(h)))
    for weight in model.trainable_variables:
        weight.assign(0.4 * rng.standard_normal(weight.shape))
    targets = {"neurons": 9, "kv_groups": 1}
    small = ki.shrink(model, targets, tokens, "magnitude", refit=True)
    given = keras.Model(small.input, small.get_layer("norm").output)(tokens)
    hidden = to_numpy(up(given)).astype("float64")
    kernel, bias = float64(down)
    kept = kept_columns(up, small.get_layer("up"))
    expected = chosen(hidden, kernel, kept, bias)
    found = small.get_layer("down")
    np.testing.assert_allclose(to_numpy(found.kernel), expected[:-1], atol=5e-4)


def test_data_are_read_once(x):
    """Batches that come in another order each time belong to what was kept of them."""

    class Batches:
        read = 0

        def __iter__(self):
            Batches.read += 1
            yield from x.reshape(BATCHES, BATCH, *x.shape[1:])

    model, targets = chain(2), {"neurons": 9}
    small = ki.shrink(model, targets, Batches(), "magnitude", refit=True)
    assert Batches.read == 1
    other = ki.shrink(model, targets, x, "magnitude", refit=True, batch_size=BATCH)
    for one, two in zip(small.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(two))
