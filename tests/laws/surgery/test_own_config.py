"""Blocks of the user's own: their configs follow a narrowing, or a warning says so."""

import warnings

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._graph.configs import check_configs
from keras_idea._surgery.narrow_in_place import narrow_whole

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
class Listed(keras.layers.Layer):
    """Its widths are entries of a list in its config, read-only ones of a dict."""

    def __init__(self, dims=(12, 12), **kwargs):
        super().__init__(**kwargs)
        self.numbers = {"dims": list(dims)}
        self.ups = [keras.layers.Dense(dim, "relu") for dim in dims]
        self.downs = [keras.layers.Dense(8) for _ in dims]

    def call(self, x):
        for up, down in zip(self.ups, self.downs, strict=True):
            x = x + down(up(x))
        return x

    def get_config(self):
        return {**super().get_config(), "dims": self.numbers["dims"]}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Half(keras.layers.Layer):
    """Its width is a read-only property, as in Keras's own layers, and twice 6."""

    def __init__(self, half=6, **kwargs):
        super().__init__(**kwargs)
        self._half = half
        self.up, self.down = keras.layers.Dense(2 * half, "relu"), keras.layers.Dense(8)

    def call(self, x):
        return x + self.down(self.up(x))

    @property
    def half(self):
        return self._half

    def build(self, shape):
        self.up.build(shape)
        self.down.build((*shape[:-1], 2 * self.half))

    def get_config(self):
        return {**super().get_config(), "half": self.half}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Fixed(Half):
    """Its config does not have its width."""

    def get_config(self):
        return keras.layers.Layer.get_config(self)


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Outer(keras.layers.Layer):
    """Holds a block as a part of its config."""

    def __init__(self, inner=None, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.saving.deserialize_keras_object(inner) if inner else Half()

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OfBlocks(keras.Model):
    """Keras notes the numbers of its constructor, which are those of all its blocks."""

    def __init__(self, half=6, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Half(half) for _ in range(depth)]

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Scaled(keras.layers.Layer):
    """A weight of each unit: as many as it is called on, or as its config says."""

    def __init__(self, size=None, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def build(self, shape):
        self.scale = self.add_weight((self.size or shape[-1],), "ones", name="scale")

    def call(self, x):
        return x * self.scale

    def get_config(self):
        return {**super().get_config(), "size": self.size}


def scaled(size=None):
    up, down = keras.layers.Dense(12, "relu"), keras.layers.Dense(8)
    return keras.Sequential([keras.Input((8,)), up, Scaled(size), down])


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Products(keras.layers.Layer):
    """Takes one size of inputs alone. It was made with an object, as kernels may be."""

    def __init__(self, width=12, spec="axes", initializer="he_normal", **kwargs):
        super().__init__(**kwargs)
        self.width, self.spec = width, spec
        self.initializer = keras.initializers.get(initializer)

    def build(self, shape):
        self.up = self.add_weight((shape[-1], self.width), self.initializer)
        self.down = self.add_weight((self.width, shape[-1]), self.initializer)
        if self.spec == "axes":
            self.input_spec = keras.layers.InputSpec(ndim=2, axes={1: shape[-1]})
        elif self.spec == "shape":
            self.input_spec = keras.layers.InputSpec(shape=(None, *shape[1:]))

    def call(self, x):
        hidden = keras.ops.relu(keras.ops.matmul(x, self.up))
        return x + keras.ops.matmul(hidden, self.down)

    def get_config(self):
        how = keras.initializers.serialize(self.initializer)
        own = {"width": self.width, "spec": self.spec, "initializer": how}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class OwnSpec(Products):
    """Nobody can set what it takes."""

    @property
    def input_spec(self):
        return (
            keras.layers.InputSpec(axes={-1: self.up.shape[0]}) if self.built else None
        )


def products(spec, cls=Products):
    up, down = keras.layers.Dense(12, "relu"), keras.layers.Dense(8)
    own = cls(spec=spec, initializer=keras.initializers.HeNormal(seed=3))
    return keras.Sequential([keras.Input((8,)), up, own, down])


def in_another_shape(more):
    """What enters a nested model has an axis less, or more, than its input."""
    inputs = keras.Input((12, 1) if more else (12,))
    inner = keras.Sequential([inputs, keras.layers.Flatten(), keras.layers.Dense(8)])
    shape = [] if more else [keras.layers.Reshape((12, 1))]
    up = keras.layers.Dense(12, "relu")
    return keras.Sequential([keras.Input((8,)), up, *shape, inner])


BLOCKS = {
    "weights of units": scaled,
    "weights of units, by a number": lambda: scaled(12),
    "an InputSpec": lambda: products("axes"),
    "an InputSpec of a shape": lambda: products("shape"),
    "an InputSpec of its own": lambda: products("", OwnSpec),
    "an axis more in a model": lambda: in_another_shape(True),
    "an axis less in a model": lambda: in_another_shape(False),
    "one number of several blocks": OfBlocks,
    "half of it, read-only": Half,
    "a number that Keras notes": lambda: OfDense(8, 12),
    "entries of a list": Listed,
    "a block in its config": Outer,
}
IN_VAIN = "The config of"


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
    said = r"The config of Fixed '.*' makes"
    model = around(Fixed())
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


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Attention(keras.layers.Layer):
    """Its heads are `dim / heads` wide, unless it is told how wide."""

    def __init__(self, heads=4, size=None, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.size = heads, size
        self.attention = keras.layers.MultiHeadAttention(heads, size or 8 // heads)

    def call(self, x):
        return x + self.attention(x, x)

    def get_config(self):
        own = {"heads": self.heads, "size": self.size}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable(package="keras_idea_tests")
class Divided(Attention):
    """Nothing says how wide its heads are."""

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "heads": self.heads}


def test_a_size_that_follows_from_the_number_of_heads():
    inputs = keras.Input((5, 8))
    model = keras.Model(inputs, Attention()(inputs))
    (group,) = ki.find_groups(model)
    check_configs(model, [(group, 2)], hub_only=False)
    config = model.layers[1].get_config()
    assert (config["heads"], config["size"]) == (4, None)
    narrow_whole(model, [(group, np.arange(2))])
    config = model.layers[1].get_config()
    assert (config["heads"], config["size"]) == (2, 2)
    model = keras.Model(inputs, Divided()(inputs))
    with pytest.warns(UserWarning, match="with heads=2"):
        check_configs(model, [(*ki.find_groups(model), 2)], hub_only=False)
