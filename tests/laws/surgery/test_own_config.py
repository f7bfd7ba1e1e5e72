"""Blocks of the user's own: their configs follow a narrowing, or a warning says so."""

import warnings

import keras
import numpy as np
import pytest

import keras_idea as ki

X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
FIT = {"batch_size": 8, "verbose": 0}
PRUNE = {"begin_step": 1, "prune_steps": 2}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfDense(keras.layers.Layer):
    """As in Keras's examples: without `build` and `get_config`, which Keras makes."""

    def __init__(self, dim, ff_dim, scale=2, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        self.ffn = keras.Sequential(
            [keras.layers.Dense(ff_dim, activation="relu"), keras.layers.Dense(dim)]
        )
        self.dropout = keras.layers.Dropout(rate)

    def call(self, x):
        return x + self.dropout(self.ffn(x)) / self.scale


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class ReadOnly(keras.layers.Layer):
    """Its width is a property, as in Keras's own layers, or lies somewhere else."""

    def __init__(self, ff_dim=12, apart=False, **kwargs):
        super().__init__(**kwargs)
        self._ff_dim, self.apart, self.numbers = ff_dim, apart, {"ff_dim": ff_dim}
        self.up, self.down = keras.layers.Dense(ff_dim, "relu"), keras.layers.Dense(8)

    def call(self, x):
        return x + self.down(self.up(x))

    @property
    def ff_dim(self):
        return self.numbers["ff_dim"] if self.apart else self._ff_dim

    def build(self, shape):
        self.up.build(shape)
        self.down.build((*shape[:-1], self.ff_dim))

    def get_config(self):
        own = {"ff_dim": self.ff_dim, "apart": self.apart}
        return {**super().get_config(), **own}


BLOCKS = {
    "a read-only number": ReadOnly,
    "a number that Keras notes": lambda: OfDense(8, 12),
}
IN_VAIN = "The config of .* makes layers of another width"


def around(block):
    inputs = keras.Input((8,))
    model = keras.Model(inputs, keras.layers.Dense(1)(block(inputs)))
    model.compile("adam", "mse")
    return model


def prune(model, compact):
    callback = ki.IdeaPruneCallback(4, **PRUNE, compact=compact)
    model.fit(X, X[:, :1], epochs=2, callbacks=[callback], **FIT)


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_config_follows_and_the_file_loads(kind, compact, tmp_path):
    model = around(BLOCKS[kind]())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=IN_VAIN)
        prune(model, compact)
        narrow = ki.compact(model)
    expected = model.predict(X, verbose=0)
    for name, saved in (("model", model), ("narrow", narrow)):
        saved.save(tmp_path / f"{name}.keras")
        loaded = keras.models.load_model(tmp_path / f"{name}.keras")
        found = loaded.predict(X, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        widths = [ffn.width for ffn in ki.find_ffns(loaded)]
        assert widths == [ffn.width for ffn in ki.find_ffns(model)] and 4 in widths
    assert {ffn.hidden_dim for ffn in ki.find_ffns(narrow)} == {4}


@pytest.mark.parametrize("compact", ["end", "off"])
def test_a_config_that_cannot_follow_is_told(compact, tmp_path):
    said = r"The config of ReadOnly '.*' makes"
    model = around(ReadOnly(apart=True))
    if compact == "end":
        with pytest.warns(UserWarning, match=said):
            prune(model, compact)
    else:
        prune(model, compact)
    with pytest.warns(UserWarning, match=said):
        narrow = ki.compact(model)
    # It is so.
    narrow.save(tmp_path / "narrow.keras")
    with pytest.raises(ValueError):
        keras.models.load_model(tmp_path / "narrow.keras")
