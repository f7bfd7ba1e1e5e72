"""Channels pruned in `fit`, against Algorithm 1 in NumPy, float64."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support import channels_reference
from tests.support.helpers import to_numpy

RATE, BEGIN, STEPS, BATCH, TOTAL = 0.2, 2, 6, 4, 10


def network():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((7, 7, 2))
    x = layers.Conv2D(8, 3, use_bias=False, name="first")(inputs)
    x = layers.BatchNormalization(name="normal")(x)
    x = layers.ReLU()(x)
    y = layers.Conv2D(6, 3, activation="relu", name="second")(x)
    pooled = [layers.GlobalAveragePooling2D()(part) for part in (y, x)]
    pooled = layers.Concatenate()(pooled)
    model = keras.Model(inputs, layers.Dense(3, use_bias=False, name="out")(pooled))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE, momentum=0.0), loss)
    return model


def weights_of(model):
    first, gamma, beta, _, _, second, bias, out = map(to_numpy, model.weights)
    parts = (first, gamma, beta, second, bias, out)
    return dict(zip(channels_reference.NAMES, parts, strict=True))


def data():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(BATCH * TOTAL, 7, 7, 2)).astype("float32")
    return x, rng.integers(0, 3, BATCH * TOTAL)


def trained(model, compact, **arguments):
    x, y = data()
    prune = ki.IdeaPruneCallback(
        targets={"channels": 0.5},
        begin_step=BEGIN,
        prune_steps=STEPS,
        compact=compact,
        **arguments,
    )
    history = model.fit(x, y, BATCH, 1, 0, [prune], shuffle=False)
    return model, history.history


@pytest.mark.daily("torch", "tensorflow")
def test_equals_numpy_in_float64():
    model = network()
    x, y = data()
    parts = [slice(i, i + BATCH) for i in range(0, len(x), BATCH)]
    batches = [(x[part], y[part]) for part in parts]
    targets = (4, 3)
    steps = channels_reference.run(
        weights_of(model), batches, RATE, targets, BEGIN, STEPS, 0.4
    )
    *_, (expected, masks, _) = steps
    trained(model, "off")
    groups = ki.find_groups(model, ["channels"])
    for group, mask in zip(groups, masks, strict=True):
        np.testing.assert_array_equal(to_numpy(group.mask), mask)
    for name, weight in weights_of(model).items():
        np.testing.assert_allclose(weight, expected[name], atol=2e-6)
