"""What an elastic run rejects before the first step."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.elastic import FIT, classifier, data

SMALL = {"small": 4}


def sequential(*between, **arguments):
    dense = keras.layers.Dense
    layers = [keras.Input((4,)), dense(16, "relu", **arguments), *between, dense(3)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model


def two_ffns(*names):
    """A model of two FFNs, "a" and "b", whose layers of these names are frozen."""
    dense = keras.layers.Dense
    x = inputs = keras.Input((4,))
    for name in "ab":
        x = x + dense(4)(dense(16, "relu", name=name)(x))
    model = keras.Model(inputs, dense(3)(x))
    for name in names:
        model.get_layer(name).trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model


def with_pruned_neurons():
    model = classifier("sgd")
    up, down = model.get_weights()
    up[:, :2], down[:2] = 0.0, 0.0
    model.set_weights([up, down])
    return model


NORM = keras.layers.BatchNormalization
MODELS = {
    "statistics": (lambda: sequential(NORM()), {}, "would have statistics of several"),
    "constraint": (
        lambda: sequential(kernel_constraint="max_norm"),
        {},
        "constraint sees",
    ),
    "frozen": (lambda: two_ffns("b"), {}, "b: it is frozen.*name the other FFNs"),
    "pruned": (with_pruned_neurons, {}, r"up: some of its .*ki\.compact"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, arguments, message = MODELS[name]
    model = make("sgd") if make is classifier else make()
    callback = ki.ElasticCallback(**{"widths": SMALL, **arguments})
    function = model.make_train_function() or model.train_function
    with pytest.raises(ki.KerasIdeaError, match=message):
        model.fit(*data(), callbacks=[callback], **FIT)
    assert model.train_function is function  # as it was


def test_one_callback_of_a_fit():
    callbacks = [ki.ElasticCallback(SMALL), ki.IdeaPruneCallback(4, 0, 2)]
    with pytest.raises(ki.KerasIdeaError, match="One `fit` takes one"):
        classifier("sgd").fit(*data(), callbacks=callbacks, **FIT)


def test_a_step_that_knows_no_width():
    """Of a loop of the user's own: `train_on_batch` is right, another is refused."""
    x, y = data()
    expected, model = (classifier("sgd") for _ in range(2))
    expected.fit(x, y, callbacks=[ki.ElasticCallback(SMALL)], **FIT)
    callback = ki.ElasticCallback(SMALL)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in range(4):
        callback.on_train_batch_begin(batch)
        rows = slice(8 * batch, 8 * batch + 8)
        model.train_on_batch(x[rows], y[rows])
    for got, want in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(got, want)
    callback.on_train_batch_begin(4)
    with pytest.raises(ki.KerasIdeaError, match="a custom step ignores"):
        callback.on_train_batch_begin(5)
    callback.on_train_end()
