"""A model that is saved in the middle of pruning, and files of another width."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.ways_to_train import (
    FIT,
    model_of,
)

BEGIN, STEPS, TARGET = 3, 9, 4


@pytest.mark.parametrize("end", [".keras", ".weights.h5"])
def test_saved_in_the_middle_it_loads_and_goes_on(end, data, tmp_path):
    """By Keras's ModelCheckpoint, at an epoch's end: optimizer, scores and masks."""
    path = tmp_path / f"half{end}"
    model = model_of(ki.PrunableGatedFFN)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    whole = end == ".keras"
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=not whole)
    stop = _StopAfter(8)
    prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS)
    model.fit(*data, epochs=3, callbacks=[save, prune, stop], **FIT)
    if whole:
        loaded = keras.models.load_model(path)
    else:
        loaded = model_of(ki.PrunableGatedFFN)
        loaded.compile(keras.optimizers.Adam(0.01), "mse")
        loaded.optimizer.build(loaded.trainable_variables)
        loaded.load_weights(path)
    pair = [ki.find_ffns(m)[0] for m in (model, loaded)]
    for name in ("mask", "scores"):
        arrays = [to_numpy(getattr(ffn, name)) for ffn in pair]
        np.testing.assert_array_equal(*arrays)
    assert pair[1].width == ki.CubicWidth(16, TARGET, BEGIN, STEPS)(8)
    slots = [[to_numpy(v) for v in m.optimizer.variables] for m in (model, loaded)]
    for one, other in zip(*slots, strict=True):
        np.testing.assert_array_equal(one, other)
    for m in (model, loaded):
        prune = ki.IdeaPruneCallback(TARGET, BEGIN, STEPS)
        m.fit(*data, epochs=1, callbacks=[prune], **FIT)
    outputs = [m.predict(data[0], verbose=0) for m in (model, loaded)]
    np.testing.assert_allclose(*outputs, atol=1e-5)


class _StopAfter(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            self.model.stop_training = True
