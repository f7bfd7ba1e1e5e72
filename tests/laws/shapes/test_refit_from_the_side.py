"""A refit as a tester came upon it: silently wrong once, or an error without words."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.block_chains import WIDTH
from tests.support.helpers import to_numpy

SAMPLES = 24


class TestFromTheSide:
    """What a tester found: silently wrong, or an error without words."""

    def moved(self, model, x, targets):
        """The largest change of a refitted model when only padding changes."""
        embedding = model.get_layer("embedding").embeddings
        made = []
        for value in (0.0, 3.0):
            table = to_numpy(embedding).copy()
            table[0] = value
            embedding.assign(table)
            small = ki.shrink(model, targets, x, method="magnitude", refit=True)
            made.append([to_numpy(w) for w in small.weights if "embed" not in w.path])
        pairs = zip(*made, strict=True)
        return max(np.abs(one - other).max() for one, other in pairs)

    @pytest.mark.parametrize("kind", ["neurons", "kv_groups"])
    def test_keras_s_own_mask(self, kind):
        rng = np.random.default_rng(0)
        x = rng.integers(1, 30, (SAMPLES, 6)) * (np.arange(6) < 4)
        inputs = keras.Input((6,), dtype="int32")
        layers = keras.layers
        h = layers.Embedding(30, WIDTH, mask_zero=True, name="embedding")(inputs)
        if kind == "neurons":
            h = layers.Dense(WIDTH)(layers.Dense(20, "gelu")(h))
        else:
            h = layers.MultiHeadAttention(2, 4)(h, h)
        model = keras.Model(inputs, h)
        assert self.moved(model, x, {kind: 0.5}) < 1e-5

    def test_a_mask_of_other_tokens(self):
        """One activation for each sample: a mask of tokens says nothing of it."""
        layers, made = keras.layers, []
        rng = np.random.default_rng(0)
        x = rng.standard_normal((SAMPLES, 6, WIDTH)).astype("float32")
        mask = np.arange(6) < rng.integers(1, 6, (SAMPLES, 1))
        for name in ("padding_mask", "other"):
            keras.utils.set_random_seed(0)
            inputs = {"x": keras.Input((6, WIDTH), name="x")}
            inputs[name] = keras.Input((6,), name=name)
            pooled = layers.GlobalAveragePooling1D()(inputs["x"])
            pooled = layers.Concatenate()([pooled, inputs[name]])
            h = layers.Dense(2)(layers.Dense(16, "relu", name="up")(pooled))
            data = {"x": x, name: mask.astype("float32")}
            model = keras.Model(inputs, h)
            made.append(ki.shrink(model, {"neurons": 8}, data, refit=True).weights)
        for one, other in zip(*made, strict=True):
            np.testing.assert_array_equal(to_numpy(one), to_numpy(other))

    def test_neurons_of_a_large_mean(self, x):
        """In float32 their products alone would leave few digits."""
        inputs = keras.Input((6, WIDTH))
        up = keras.layers.Dense(16, name="up")
        model = keras.Model(inputs, keras.layers.Dense(3)(up(inputs)))
        up.bias.assign(np.full(16, 1000.0))
        small = ki.shrink(model, {"neurons": 8}, x, refit=True)
        y = to_numpy(model(x)).astype("float64")
        off = np.square(to_numpy(small(x)) - y).mean() / y.var(axis=(0, 1)).mean()
        assert off < 0.01

    def test_constraints(self, x):
        inputs = keras.Input((6, WIDTH))
        down = keras.layers.Dense(3, kernel_constraint="non_neg")
        model = keras.Model(inputs, down(keras.layers.Dense(8, "relu")(inputs)))
        with pytest.raises(ki.KerasIdeaError, match="does not support a kernel const"):
            ki.shrink(model, {"neurons": 4}, x, refit=True)
