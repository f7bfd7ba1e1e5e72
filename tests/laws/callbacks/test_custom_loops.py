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
    with pytest.MonkeyPatch.context() as patch:
        # TensorFlow only warns of code that its AutoGraph does not know.
        patch.setenv("AUTOGRAPH_STRICT_CONVERSION", "1")
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


@pytest.mark.parametrize(
    "name, compact", [("train_on_batch", "progressive"), ("by hand", "end")]
)
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
