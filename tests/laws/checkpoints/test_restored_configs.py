"""What a restored model says of itself is what it is: its file can be loaded."""

import keras
import numpy as np

import keras_idea as ki
from tests.support.ways_to_train import FIT


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfNumbers(keras.layers.Layer):
    """Makes its layers of a number, which its config holds."""

    def __init__(self, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.up = keras.layers.Dense(hidden_dim, "gelu")
        self.down = keras.layers.Dense(8)

    def call(self, x):
        return x + self.down(self.up(x))

    def get_config(self):
        return {**super().get_config(), "hidden_dim": self.hidden_dim}


def made():
    inputs = keras.Input((5, 8))
    outputs = keras.layers.Dense(1)(OfNumbers(12, name="block")(inputs))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "mse")
    return model


def test_blocks_of_the_users_own_follow(data, tmp_path):
    """The run has narrowed them, and `restore` narrows a model that was made wide."""
    model, checkpoint = made(), ki.Checkpoint(tmp_path / "checkpoints")
    prune = ki.IdeaPruneCallback(4, 1, 3)
    model.fit(*data, callbacks=[prune, checkpoint], **FIT)
    restored = made()
    assert ki.Checkpoint(tmp_path / "checkpoints").restore(restored) == 1
    for each in (model, restored):
        assert each.get_layer("block").hidden_dim == 4
        each.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(
            loaded.predict(data[0], verbose=0), each.predict(data[0], verbose=0)
        )
