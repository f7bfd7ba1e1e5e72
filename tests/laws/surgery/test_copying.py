"""`compact` copies what is there: no config, no constructor, nothing shared."""

import collections
import functools
import weakref

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.masks import prune_by_hand

X = np.random.default_rng(0).normal(size=(6, 8)).astype("float32")


class Net(keras.Model):
    """Without `get_config`: Keras notes the defaults, of what it was not given."""

    def __init__(self, epsilon=1e-6, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon)
        self.drop = keras.layers.Dropout(rate, seed=1)
        self.up, self.down = keras.layers.Dense(12, "gelu"), keras.layers.Dense(8)

    def call(self, x):
        return self.drop(self.down(self.up(self.norm(x))))


class Unnamed(Net):
    """Weights without names, which Keras numbers; one is in a list."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(8,), initializer="ones")
        self.shifts = [self.add_weight(shape=(8,), trainable=False)]
        for layer in (self.norm, self.up):
            layer.build(shape)
        self.down.build((*shape[:-1], 12))

    def call(self, x):
        return super().call(x * self.scale + self.shifts[0])


class Places(keras.layers.Layer):
    """A Dense layer beside an embedding of places, as in keras.io's ViT."""

    def __init__(self):
        super().__init__()
        self.project, self.place = keras.layers.Dense(8), keras.layers.Embedding(6, 8)

    def build(self, shape):
        self.project.build(shape)
        self.place.build(None)

    def call(self, x):
        return self.project(x) + self.place(keras.ops.arange(6))


class Closing(Net):
    """What it calls is reached through functions and objects of its own."""

    def __init__(self):
        super().__init__()
        self.normed = lambda x: self.norm(x)
        self.run = functools.partial(self.feed, times=3.0)
        Pair = collections.namedtuple("Pair", ["up", "down"])
        self.pairs = [{"first": Pair(self.up, self.down)}]
        self.parent = [weakref.ref(self)]

    def feed(self, x, times):
        pair = self.pairs[0]["first"]
        return times * pair.down(pair.up(x))

    def call(self, x):
        return self.run(self.parent[0]().normed(x))


class Slots:
    """An object without a `__dict__`."""

    __slots__ = ("layer",)

    def __init__(self, layer):
        self.layer = layer


class Calling(dict):
    """A dict that can be called."""

    def __call__(self, x):
        return self["norm"](x)


class Holding(Net):
    """Layers in what is no plain list or dict, and an optimizer of its own."""

    def __init__(self):
        super().__init__()
        up, self.queue = self.up, collections.deque([Slots(self.down)])
        self.holder = Slots([frozenset([up]), Calling(norm=self.norm)])
        self.another = keras.optimizers.SGD(0.1, momentum=0.9)

        def repeated(x, times=2):
            return up(x) if times == 0 else repeated(x, times - 1)

        self.repeated = repeated

    def call(self, x):
        (up,), norm = self.holder.layer
        return self.queue[0].layer(up(norm(x)) + self.repeated(x))


class Cell(keras.layers.Layer):
    """A recurrent cell that makes its own FFN."""

    def __init__(self):
        super().__init__()
        self.state_size, self.ffn = 8, ki.PrunableGatedFFN(12)

    def build(self, shape):
        self.ffn.build(shape)

    def call(self, x, states):
        y = self.ffn(x) + states[0]
        return y, [y]


class Chain(keras.Sequential):
    """A `Sequential` with code of its own."""

    def __init__(self, times):
        layers = [keras.layers.Dense(12, "gelu"), keras.layers.Dense(8)]
        super().__init__([keras.Input((8,)), *layers])
        self.times = times

    def call(self, x, training=None, mask=None):
        return super().call(x) * self.times


class Graph(keras.Model):
    """A functional model with a constructor of its own."""

    def __init__(self, times):
        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(12, "gelu")(inputs)
        super().__init__(inputs, keras.layers.Dense(8)(hidden))
        self.times = times

    def call(self, x, training=None, mask=None):
        return super().call(x) * self.times


def with_places():
    inputs = keras.Input((6, 4))
    x = Places()(inputs)
    x = x + keras.layers.Dense(8)(keras.layers.Dense(12, "gelu")(x))
    return keras.Model(inputs, x)


def recurrent():
    inputs = keras.Input((3, 8))
    return keras.Model(inputs, keras.layers.RNN(Cell())(inputs))


def encoder():
    """A block of KerasHub's in a model of the user's, without its backbone."""
    import keras_hub

    block = keras_hub.layers.TransformerEncoder(12, num_heads=2)
    inputs = keras.Input((3, 8))
    return keras.Model(inputs, block(inputs))


MODELS = {
    "no config": lambda: Net(epsilon=0.3, rate=0.5),
    "unnamed weights": Unnamed,
    "places": with_places,
    "functions": Closing,
    "other holders": Holding,
    "a cell": recurrent,
    "a sequence": lambda: Chain(3.0),
    "a graph": lambda: Graph(3.0),
    "an encoder's block": encoder,
}


def prune_half(model):
    for ffn in ki.find_ffns(model):
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) % 2)


def example(model):
    shape = model.input_shape[1:] if hasattr(model, "input_shape") else (8,)
    return np.random.default_rng(1).normal(size=(6, *shape)).astype("float32")


@pytest.mark.parametrize("kind", MODELS)
def test_a_copy_is_the_model_and_shares_nothing(kind):
    model = MODELS[kind]()
    x = X if isinstance(model, Net) else example(model)
    model(x)
    prune_half(model)
    expected = keras.ops.convert_to_numpy(model(x))
    narrow = ki.compact(model)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [6]
    assert type(narrow) is type(model)
    found = keras.ops.convert_to_numpy(narrow(x))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for variable in narrow.trainable_variables:
        variable.assign(np.full(variable.shape, 0.25))
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(x)), expected)
    changed = keras.ops.convert_to_numpy(narrow(x))
    assert np.abs(changed - found).max() > 1e-3


def test_a_copy_has_the_attributes_of_the_model():
    model = Net(epsilon=0.3, rate=0.5, trainable=False, dtype="mixed_bfloat16")
    model(X)
    narrow = ki.compact(model)
    assert (narrow.norm.epsilon, narrow.drop.rate) == (0.3, 0.5)
    assert narrow.dtype_policy == model.dtype_policy and not narrow.trainable
    names = [[v.path for v in each.variables] for each in (model, narrow)]
    assert names[0] == names[1]
    # It trains as one that was made so: nothing is locked or left out.
    narrow.trainable = True
    assert len(narrow.trainable_variables) == 6


def test_an_optimizer_that_a_model_holds_goes_on_with_its_state():
    model = Holding()
    model(X)
    prune_half(model)
    another, kernel = model.another, model.down.kernel
    another.build([model.up.kernel, kernel])
    another.apply([keras.ops.ones(v.shape) for v in (model.up.kernel, kernel)])
    prune_half(model)
    narrow = ki.compact(model)
    assert narrow.another is not another
    slots = [o.variables[-1] for o in (narrow.another, another)]
    assert tuple(slots[0].shape) == tuple(narrow.down.kernel.shape)
    found, expected = (keras.ops.convert_to_numpy(slot) for slot in slots)
    np.testing.assert_array_equal(found, expected[1::2])


def test_a_layer_that_is_out_of_reach_is_refused():
    model = Net()
    model.cached = functools.lru_cache(model.up)
    model(X)
    with pytest.raises(
        ValueError, match="attribute 'cached' .* cannot|cannot .* 'cached'"
    ):
        ki.compact(model)


def test_a_copy_that_computes_something_else_is_refused():
    """Code that knows one object, and no other that has the same attributes."""
    first = []

    class Single(Net):
        def call(self, x):
            y = super().call(x)
            return y if first[:1] in ([], [self]) else 2 * y

    model = Single()
    model(X)
    first.append(model)
    prune_half(model)
    with pytest.raises(ValueError, match="computes something else"):
        ki.compact(model)
