"""Checkpoints that do not fit a model or a run are refused, in words."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import CheckpointError
from tests.support.helpers import residual_model, to_numpy


class Keeper(keras.callbacks.Callback):
    """A callback with something to keep."""

    def get_state(self):
        return {"losses": np.zeros(1)}

    def set_state(self, state):
        """Takes what it kept."""


class TestRefusals:
    def saved(self, data, folder, hidden_dim=8, optimizer="sgd", **changes):
        model = residual_model((hidden_dim,))
        model.compile(optimizer, "mse")
        checkpoint = ki.Checkpoint(folder, **changes)
        return model, checkpoint

    @pytest.fixture
    def folder(self, data, tmp_path):
        model, checkpoint = self.saved(data, tmp_path, identity={"seed": 1})
        model.fit(*data, verbose=0, callbacks=[checkpoint])
        return tmp_path

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"identity": {"seed": 2}}, "another run: seed was 1 and is 2. Set it"),
            ({"hidden_dim": 9}, "of another model: 'model/00000/up_kernel' has"),
            ({"hidden_dim": 7}, r"widths \[7\] cannot be narrowed to .* \[8\]"),
            ({"optimizer": "adam"}, "optimizer SGD, but the model is compiled with"),
            ({"stateful": {"recorder": Keeper()}}, r"holds the state of \[\]"),
        ],
    )
    def test_another_run(self, folder, data, changes, message):
        model, checkpoint = self.saved(
            data, folder, **{"identity": {"seed": 1}, **changes}
        )
        before = [to_numpy(v) for v in model.variables]
        with pytest.raises(CheckpointError, match=message):
            checkpoint.restore(model)
        for value, variable in zip(before, model.variables, strict=True):
            np.testing.assert_array_equal(to_numpy(variable), value)

    def test_a_model_that_is_not_built(self, folder):
        model = keras.Sequential([ki.PrunableGatedFFN(8)])
        model.compile("sgd", "mse")
        checkpoint = ki.Checkpoint(folder, identity={"seed": 1})
        with pytest.raises(CheckpointError, match="has no variables yet. Build it"):
            checkpoint.restore(model)

    def test_an_identity_of_numpy(self, data, tmp_path):
        """Its integers are integers, and its tuples lists, before and after."""
        identity = {"seed": np.int64(3), "shape": (5, 8), 4: 2.5}
        model, checkpoint = self.saved(data, tmp_path, identity=identity)
        model.fit(*data, verbose=0, callbacks=[checkpoint])
        model, checkpoint = self.saved(data, tmp_path, identity=identity)
        assert checkpoint.restore(model) == 1
