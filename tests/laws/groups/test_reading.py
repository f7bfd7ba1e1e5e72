"""Looking at what is pruned changes nothing."""

import keras
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


@pytest.mark.daily("torch", why="the same Python on each backend")
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
