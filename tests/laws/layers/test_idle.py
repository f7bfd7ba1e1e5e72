"""A layer that nobody prunes is a plain one, however it is called and trained.

Each way of training runs twice from the same weights, with `GatedFFN` and with
`PrunableGatedFFN`; the losses and weights must be the same numbers.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.ways_to_train import (
    CALLS,
    FIT,
    Clipped,
    ClippedByGlobalNorm,
    ClippedByValue,
    gradients_of,
    model_of,
    other_optimizer,
)


def numbers(model):
    return [to_numpy(v) for v in model.trainable_variables]


def assert_same(train, **kwargs):
    """Trains both kinds; what `train` returns, and the weights, must be equal."""
    plain, prunable = (
        model_of(c, **kwargs) for c in (ki.GatedFFN, ki.PrunableGatedFFN)
    )
    assert len(plain.trainable_variables) == len(prunable.trainable_variables)
    before = numbers(plain)
    expected, received = train(plain), train(prunable)
    np.testing.assert_allclose(received, expected, rtol=1e-5)
    for one, other in zip(numbers(plain), numbers(prunable), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
        assert np.isfinite(one).all()
    assert any((a != b).any() for a, b in zip(before, numbers(plain), strict=True))
    for ffn in ki.find_ffns(prunable):
        assert ffn.width == 16 and set(to_numpy(ffn.mask)) == {1.0}
    return plain, prunable


def fitted(model, data, optimizer=None, **kwargs):
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", **kwargs)
    return model.fit(*data, epochs=2, **FIT).history["loss"]


@pytest.mark.parametrize("call", CALLS)
def test_however_it_is_called(call, data):
    assert_same(lambda model: fitted(model, data), call=CALLS[call])


def test_in_a_branch_without_a_loss(data):
    def train(model):
        model.compile(keras.optimizers.Adam(0.01), loss=["mse", None])
        targets = [data[1], data[1]]
        return model.fit(data[0], targets, epochs=2, **FIT).history["loss"]

    plain, prunable = assert_same(train, branch=True)
    sides = [m.predict(data[0], verbose=0)[1] for m in (plain, prunable)]
    np.testing.assert_allclose(*sides, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"clipnorm": 0.01},
        {"global_clipnorm": 0.01},
        {"clipvalue": 0.001},
        {"weight_decay": 0.5},
        {"use_ema": True, "ema_momentum": 0.5},
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 3},
        {"gradient_accumulation_steps": 3},
    ],
    ids=lambda arguments: next(reversed(arguments)),
)
def test_whatever_the_optimizer_does(arguments, data):
    assert_same(lambda m: fitted(m, data, keras.optimizers.Adam(0.01, **arguments)))


@pytest.mark.parametrize("cls", [Clipped, ClippedByValue, ClippedByGlobalNorm])
def test_in_a_custom_train_step_that_clips(cls, data):
    assert_same(lambda model: fitted(model, data), cls=cls)


def hand_written_sgd(model, data, l2=0.0):
    """No optimizer at all: gradients of the backend, and a loop."""
    x, y = data
    losses = []
    for _ in range(4):
        loss, gradients = gradients_of(model, x, y, l2)
        losses.append(loss)
        for variable, gradient in zip(
            model.trainable_variables, gradients, strict=True
        ):
            variable.assign(variable.value - 0.05 * gradient)
    return losses


@pytest.mark.parametrize("l2", [0.0, 0.01], ids=["plain", "L2"])
def test_by_a_loop_without_an_optimizer(l2, data):
    assert_same(lambda model: hand_written_sgd(model, data, l2))


def test_by_another_optimizer(data):
    assert_same(lambda model: other_optimizer(model, data))


@pytest.mark.parametrize("train", ["own", "other", "by hand"])
def test_what_is_masked_stays_masked(train, data):
    """Whoever trains it on: as the plain layer of the living, with fresh slots."""
    model = model_of(ki.PrunableGatedFFN)
    (ffn,) = ki.find_ffns(model)
    ffn.mask.assign(np.arange(16) % 3 == 0)
    narrow = ki.compact(model)
    ways = {
        "own": lambda m: fitted(m, data),
        "other": lambda m: other_optimizer(m, data),
        "by hand": lambda m: hand_written_sgd(m, data),
    }
    losses = [ways[train](m) for m in (model, narrow)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert ffn.width == 6
    outputs = [m.predict(data[0], verbose=0) for m in (model, narrow)]
    np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5)
