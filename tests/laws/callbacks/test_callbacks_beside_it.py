"""Other callbacks beside the pruning one, and fits that end otherwise than planned."""

import gc
import weakref

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import to_numpy
from tests.support.ways_to_train import (
    FIT,
    model_of,
)

TARGET = 4


RESTORING = {
    "BackupAndRestore": lambda folder: keras.callbacks.BackupAndRestore(folder),
    "SwapEMAWeights": lambda folder: keras.callbacks.SwapEMAWeights(),
}


@pytest.mark.parametrize("name", RESTORING)
def test_callbacks_that_restore_are_refused_by_name(name, data, tmp_path):
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse")
    before = [to_numpy(v) for v in model.variables]
    callbacks = [RESTORING[name](tmp_path), ki.IdeaPruneCallback(TARGET, 2, 6)]
    with pytest.raises(ValueError, match=name):
        model.fit(*data, callbacks=callbacks, **FIT)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    assert "apply" not in vars(model.optimizer)


class Given(keras.callbacks.Callback):
    """Gives the score of each epoch, and keeps the weights after it."""

    def __init__(self, scores):
        super().__init__()
        self.scores, self.weights = scores, []

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = self.scores[epoch]
        self.weights.append(self.model.get_weights())


@pytest.mark.parametrize("compact", ["end", "off"])
def test_the_best_weights_are_those_of_the_last_width(compact, data):
    """Epochs 0 and 1 have other widths, so the best of the others is restored."""
    model = model_of(dense_gated)
    model.compile("sgd", "mse")
    given = Given([1.0, 2.0, 4.0, 3.0, 5.0, 5.0, 5.0])
    stop = keras.callbacks.EarlyStopping(
        "score", mode="min", patience=2, restore_best_weights=True
    )
    prune = ki.IdeaPruneCallback(TARGET, 10, 14, compact=compact)  # 8 steps an epoch
    model.fit(*data, epochs=7, callbacks=[given, prune, stop], **FIT)
    assert len(given.weights) == 6 and ki.find_ffns(model)[0].width == TARGET
    for weight, best in zip(model.get_weights(), given.weights[3], strict=True):
        np.testing.assert_array_equal(weight, best)


class Fail(keras.callbacks.Callback):
    """Ends a fit by an exception."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 4:
            raise KeyboardInterrupt


def test_a_fit_that_an_exception_ended(data):
    """Another callback takes over; nothing of the first is left at work."""
    model = model_of(ki.PrunableGatedFFN)
    model.compile("adam", "mse")
    first = ki.IdeaPruneCallback(8, 1, 20)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, epochs=4, callbacks=[first, Fail()], **FIT)
    second = ki.IdeaPruneCallback(TARGET, 6, 8)
    model.fit(*data, epochs=2, callbacks=[second], **FIT)
    assert ki.find_ffns(model)[0].hidden_dim == TARGET
    assert "apply" not in vars(model.optimizer)
    sizes = {len(v.shape) and v.shape[-1] for v in model.optimizer.variables}
    assert 16 not in sizes


def failed(data, callback):
    """A model of stock layers, whose fit an exception has ended."""
    model = model_of(dense_gated)
    model.compile("adam", "mse")
    with pytest.raises(KeyboardInterrupt):
        model.fit(*data, epochs=4, callbacks=[callback, Fail()], **FIT)
    assert ki.find_ffns(model)[0].state.active_track is not None
    return model


@pytest.mark.parametrize("pruned", [True, False])
def test_a_model_whose_fit_failed_is_freed(pruned, data):
    """Nothing outside of the model holds it, or its optimizer."""
    elastic = ki.ElasticCallback({"half": 0.5}, begin_step=6)
    model = failed(data, ki.IdeaPruneCallback(TARGET, 1, 20) if pruned else elastic)
    held = weakref.ref(model), weakref.ref(model.optimizer)
    del model, elastic
    gc.collect()
    assert [reference() for reference in held] == [None, None]
