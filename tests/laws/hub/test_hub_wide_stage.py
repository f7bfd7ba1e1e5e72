"""Stock KerasHub models in their wide stage: they are trained as without us.

And a model that calls its backbone twice.
"""

import functools

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import start_pruning, to_numpy
from tests.support.hub_models import FULL, VOCABULARY, tiny_backbone
from tests.support.hub_training import foreign
from tests.support.ways_to_train import ClippedByGlobalNorm

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


def fitted(model, data, prunes, **arguments):
    """Losses of a fit that ends before the first neuron is pruned."""
    model.compile(keras.optimizers.Adam(0.01, **arguments), "mse")
    prune = start_pruning(model, TARGET, 100, 10) if prunes else None
    losses = model.fit(*data, epochs=2, **FIT).history["loss"]
    if prunes:
        assert all(to_numpy(ffn.scores).any() for ffn in ki.find_ffns(model))
        with pytest.warns(UserWarning, match="ended"):
            prune.on_train_end()
    return losses


WAYS = {
    "two inputs": ({"calls": 2}, fitted),
    "clipped step": ({"cls": ClippedByGlobalNorm}, fitted),
    "averages": ({}, functools.partial(fitted, use_ema=True, ema_momentum=0.5)),
}


@pytest.mark.parametrize("way", WAYS)
def test_in_the_wide_stage_it_is_trained_as_without_us(way):
    arguments, train = WAYS[way]
    results, models = [], []
    for prunes in (False, True):
        keras.utils.set_random_seed(0)
        model = around(tiny_backbone("llama3"), **arguments)
        data = numbers_for(model)
        results.append(train(model, data, prunes))
        models.append(model)
    # To the bit where nothing is compiled: what is can be fused in other ways.
    exact = {"rtol": 0 if keras.backend.backend() == "torch" else 1e-6}
    np.testing.assert_allclose(*results, **exact)
    stock, ours = models
    for one, other in zip(stock.variables, ours.variables, strict=True):
        one, other = to_numpy(one), to_numpy(other)
        np.testing.assert_allclose(other, one, **exact, atol=exact["rtol"])
    assert [ffn.width for ffn in ki.find_ffns(ours)] == [FULL] * 2
    assert foreign(ours) == []


def test_called_twice_it_is_pruned_and_compacted():
    """The gradients of both calls are one: the optimizer's."""
    model = around(tiny_backbone("llama3"), calls=2)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    data = numbers_for(model)
    prune = ki.IdeaPruneCallback(TARGET, 1, 5)
    history = model.fit(*data, epochs=2, callbacks=[prune], **FIT).history
    assert history["width"][-1] == TARGET
    narrow = ki.compact(model)
    np.testing.assert_allclose(
        narrow.predict(data[0], verbose=0), model.predict(data[0], verbose=0), atol=1e-5
    )
