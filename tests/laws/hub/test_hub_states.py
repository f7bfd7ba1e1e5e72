"""Converted KerasHub models beside the stock path: idle, frozen, shared, saved midway.

An idle converted model is compared with its stock twin number by number.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import FULL, VOCABULARY, tiny_backbone
from tests.support.selection import EACH
from tests.support.ways_to_train import ClippedByGlobalNorm, other_optimizer

once = pytest.mark.daily(
    "torch", why="laws/layers and laws/callbacks have the same ways on each"
)


FIT = {"batch_size": 4, "shuffle": False, "verbose": 0}


TARGET = 10


def around(backbone, cls=keras.Model, calls=1):
    """A regression model around a backbone that is called on several inputs."""
    inputs, outputs = {}, []
    for i in range(calls):
        part = {
            name: keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=f"{name}_{i}")
            for name, tensor in backbone.input.items()
        }
        inputs |= {f"{name}_{i}": tensor for name, tensor in part.items()}
        outputs.append(backbone(part))
    x = outputs[0] if calls == 1 else keras.layers.Add()(outputs)
    return cls(inputs, keras.layers.Dense(1, name="head")(x))


def numbers_for(model, size=16):
    rng = np.random.default_rng(5)
    x = {
        name: np.ones((size, 8), "int32")
        if "mask" in name
        else rng.integers(0, VOCABULARY, (size, 8), "int32")
        for name in model.input
    }
    return x, rng.normal(size=(size, 8, 1)).astype("float32")


def fitted(model, data, **arguments):
    model.compile(keras.optimizers.Adam(0.01, **arguments), "mse")
    return model.fit(*data, epochs=2, **FIT).history["loss"]


WAYS = {
    "two inputs": ({"calls": 2}, fitted),
    "clipped step": ({"cls": ClippedByGlobalNorm}, fitted),
    "averages": ({}, lambda m, d: fitted(m, d, use_ema=True, ema_momentum=0.5)),
    "another optimizer": ({}, other_optimizer),
}


class Plain(keras.Model):
    """Takes one array of tokens, as hand-written loops give it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, tokens, training=False):
        tokens = keras.ops.convert_to_tensor(tokens)
        ones = keras.ops.ones_like(tokens)
        names = {k: ones if "mask" in k else tokens for k in self.inner.input}
        return self.inner(names, training=training)


@once
@pytest.mark.daily(*EACH, rows=("two inputs",), why="one way on each")
@pytest.mark.parametrize("way", WAYS)
def test_idle_it_is_trained_as_the_stock_model(way):
    arguments, train = WAYS[way]
    results, models = [], []
    for convert in (False, True):
        keras.utils.set_random_seed(0)
        model = around(tiny_backbone("llama3"), **arguments)
        data = numbers_for(model)
        if train is other_optimizer:
            data = (data[0]["token_ids_0"], data[1])
            model = Plain(model)
            model(data[0])
        if convert:
            ki.make_prunable(model)
        results.append(train(model, data))
        models.append(model)
    np.testing.assert_allclose(*results, rtol=1e-5)
    stock, converted = models
    pairs = zip(stock.trainable_variables, converted.trainable_variables, strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-6)
    assert [ffn.width for ffn in ki.find_ffns(converted)] == [FULL] * 2
    outputs = [to_numpy(m(data[0])) for m in models]
    np.testing.assert_allclose(*outputs, atol=1e-5)
    np.testing.assert_array_equal(to_numpy(ki.strip(converted)(data[0])), outputs[1])


@pytest.mark.daily("jax", "torch", why="tensorflow has it in laws/callbacks")
def test_called_twice_it_is_pruned_and_compacted():
    """The gradients of both calls are one: the optimizer's."""
    model = ki.make_prunable(around(tiny_backbone("llama3"), calls=2))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    data = numbers_for(model)
    prune = ki.IdeaPruneCallback(TARGET, 1, 5)
    history = model.fit(*data, epochs=2, callbacks=[prune], **FIT).history
    assert history["width"][-1] == TARGET
    narrow = ki.compact(model)
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0), model.predict(data[0], verbose=0), atol=1e-5
    )
