"""Looking at what is pruned changes nothing."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, stock_model, to_numpy


class Reader(keras.callbacks.Callback):
    """Reads everything after each batch, and counts what that assigns."""

    def __init__(self):
        super().__init__()
        self.assigned, self.widths = [], []

    def read(self, model):
        def assign(variable, value):
            self.assigned.append(variable.path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keras.Variable, "assign", assign)
            for ffn in ki.find_groups(model):
                masks = [to_numpy(ffn.mask), to_numpy(ffn.mask)]
                if ffn.masks_itself:
                    masks.append(to_numpy(ffn.layer.mask))
                for mask in masks:
                    assert mask.sum() == ffn.width == len(ffn.kept_neurons())
                ffn.importance(), ffn.scores, ffn.full_dim, ffn.original_indices
                self.widths.append(ffn.width)

    def on_train_batch_end(self, batch, logs=None):
        self.read(self.model)


@pytest.mark.parametrize("make", [residual_model, stock_model])
def test_nothing_is_assigned(make, data):
    """Before, in the midst of and after a run, of layers with a mask and without."""
    model = make()
    model.compile("sgd", "mse", run_eagerly=True)
    reader = Reader()
    reader.read(model)
    prune = ki.IdeaPruneCallback(4, 1, 3, compact="off")
    model.fit(*data, batch_size=16, callbacks=[prune, reader], verbose=0)
    assert min(reader.widths) == 4 < max(reader.widths)
    reader.read(model)
    assert reader.assigned == []


def test_a_mask_assigned_beside_a_method_that_decides_later(data):
    """It holds at once, as when nobody prunes; and when the method decides."""
    model = residual_model((12,))
    model.compile("sgd", "mse", run_eagerly=True)
    layer, seen = model.get_layer("ffn_0"), []
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")

    class Assign(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch:
                return
            before = to_numpy(layer(x))
            layer.mask.assign(np.float32(np.arange(12) < 6))
            assert layer.width == 6 and np.abs(to_numpy(layer(x)) - before).max() > 1e-3
            seen.append(to_numpy(layer.mask))

    prune = ki.IdeaPruneCallback(4, 12, 1, method="random", compact="off")
    fit = {"batch_size": 8, "epochs": 3, "verbose": 0}
    model.fit(*data, callbacks=[prune, Assign()], **fit)
    assert layer.width == 4 and not (to_numpy(layer.mask) > seen[0]).any()
