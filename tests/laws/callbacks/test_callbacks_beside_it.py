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
    "EarlyStopping": lambda folder: keras.callbacks.EarlyStopping(
        restore_best_weights=True, monitor="loss"
    ),
    "BackupAndRestore": lambda folder: keras.callbacks.BackupAndRestore(folder),
    "SwapEMAWeights": lambda folder: keras.callbacks.SwapEMAWeights(),
}


@pytest.mark.parametrize("name", RESTORING)
def test_callbacks_that_restore_are_refused_by_name(name, data, tmp_path):
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01, use_ema=True), "mse")
    before = [to_numpy(v) for v in model.variables]
    callbacks = [RESTORING[name](tmp_path), ki.IdeaPruneCallback(TARGET, 2, 6)]
    with pytest.raises(ValueError, match=f"{name}.*puts weights of an earlier step"):
        model.fit(*data, callbacks=callbacks, **FIT)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, to_numpy(variable))
    assert "apply" not in vars(model.optimizer)


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
