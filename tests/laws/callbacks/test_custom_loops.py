"""The loops of the guide on training loops, as they stand there, against `fit`."""

import runpy

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import ROOT
from tests.support.helpers import residual_model, set_random_weights, to_numpy

BACKEND = keras.backend.backend()
GUIDES = ROOT / "docs" / "guides"
SETTINGS = {"target_dim": 4, "begin_step": 3, "prune_steps": 12}


@pytest.fixture(scope="module")
def guide():
    """The guide's names; it has run to its end then."""
    return runpy.run_path(str(GUIDES / "your_own_training_loop.py"))


def new_model():
    model = residual_model()
    set_random_weights(model)
    return model


def by_fit(data, compact):
    model = new_model()
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    prune = ki.IdeaPruneCallback(**SETTINGS, compact=compact)
    model.fit(
        *data, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[prune]
    )
    return model


def by_loop(guide, name, data, compact):
    x, y = data
    model, optimizer = new_model(), keras.optimizers.AdamW(0.01)
    prune = ki.IdeaPruneCallback(**SETTINGS, compact=compact)
    batches = [(x[i : i + 8], y[i : i + 8]) for i in range(0, 64, 8)]
    if name == "train_on_batch":
        model.compile(optimizer, "mse")
        guide["by_train_on_batch"](model, prune, batches, 3)
    else:
        loss_fn = keras.losses.MeanSquaredError()
        guide[f"by_hand_on_{BACKEND}"](model, optimizer, loss_fn, prune, batches, 3)
    return model


@pytest.mark.parametrize("compact", ["end", "progressive", "off"])
@pytest.mark.parametrize("name", ["train_on_batch", "by hand"])
def test_a_loop_ends_as_fit_does(guide, name, compact, data):
    model, expected = by_loop(guide, name, data, compact), by_fit(data, compact)
    widths = [(f.hidden_dim, f.width) for f in ki.find_ffns(model)]
    assert widths == [(f.hidden_dim, f.width) for f in ki.find_ffns(expected)]
    assert {width for _, width in widths} == {4}
    pairs = zip(ki.find_ffns(model), ki.find_ffns(expected), strict=True)
    for ffn, other in pairs:
        np.testing.assert_array_equal(ffn.original_indices, other.original_indices)
        np.testing.assert_array_equal(to_numpy(ffn.mask), to_numpy(other.mask))
    for one, other in zip(
        model.trainable_variables, expected.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)
    # Afterwards nothing is left of it.
    assert "apply" not in vars(model.optimizer)
    assert len(model.optimizer.variables) == len(expected.optimizer.variables)


def test_a_loop_that_calls_the_hooks_of_batches_alone(data):
    """Its batches begin anew with every round, and nobody says so."""
    x, y = data
    model = new_model()
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    widths = []

    class Widths(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            widths.append(logs["width"])

    prune = ki.IdeaPruneCallback(**SETTINGS)
    callbacks = keras.callbacks.CallbackList([prune, Widths()], model=model)
    callbacks.on_train_begin()
    for _ in range(3):
        for step in range(8):
            callbacks.on_train_batch_begin(step)
            rows = slice(8 * step, 8 * step + 8)
            logs = model.train_on_batch(x[rows], y[rows], return_dict=True)
            callbacks.on_train_batch_end(step, logs)
    callbacks.on_train_end()
    schedules = [ki.CubicWidth(full, 4, 3, 12) for full in (16, 12)]
    due = [np.mean([s(step) for s in schedules]) for step in range(1, 25)]
    np.testing.assert_array_equal(widths, due)
    expected = by_fit(data, "end")
    for one, other in zip(
        model.trainable_variables, expected.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(to_numpy(one), to_numpy(other), atol=1e-5)
