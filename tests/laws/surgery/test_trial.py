"""Before the first step half of the units are cut out, and the outputs compared."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea._surgery.trial import try_groups
from keras_idea.errors import ArgumentError
from keras_idea.hub.compare import example_arrays
from tests.support.helpers import to_numpy
from tests.support.masks import prune_by_hand

LENGTH, DIM, WIDTH = 3, 4, 16


@keras.saving.register_keras_serializable("tests")
class Scaled(layers.Layer):
    """A block that scales by a number that follows from its width."""

    def __init__(self, width=WIDTH, by="a shape", **kwargs):
        super().__init__(**kwargs)
        self.width, self.by = width, by
        self.up, self.down = layers.Dense(width, "relu"), layers.Dense(DIM)

    def build(self, shape):
        self.up.build(shape)
        self.down.build((None, self.width))

    def get_config(self):
        own = {"width": self.width, "by": self.by}
        return {**super().get_config(), **own}

    def call(self, x):
        hidden = self.up(x)
        factors = {
            "a shape": lambda: 1 / hidden.shape[-1],
            "an attribute": lambda: self.width**-0.5,
            "a fixed number": lambda: 0.5,
        }
        return x + self.down(hidden) * factors[self.by]()


class Rigid(Scaled):
    """Its code has its width, and its config has not."""

    def get_config(self):
        return layers.Layer.get_config(self)

    def call(self, x):
        return x + self.down(ops.reshape(self.up(x), (-1, LENGTH, WIDTH)))


class Inverse(Scaled):
    """Divides by what is zero of masked neurons, once it is told."""

    told = False

    def call(self, x):
        hidden = ops.abs(self.up(x))
        least = ops.min(ops.max(hidden, (0, 1)), keepdims=True) if self.told else 1.0
        return x + self.down(hidden) / least


class Mean(keras.regularizers.Regularizer):
    """Of units that are zeros it says something else than without them."""

    def __call__(self, x):
        return ops.mean(ops.square(x))


def regularized():
    """A chain's block whose neurons leave a model with a penalty on them."""
    inner = keras.Sequential([layers.Dense(WIDTH, "relu")], name="guilty")
    inner.activity_regularizer = Mean()
    return lambda x: layers.Dense(DIM)(inner(x))


class Fails(layers.Layer):
    """Has no memory left once it is told."""

    told = False

    def call(self, x):
        if self.told:
            raise MemoryError("no memory is left")
        return x


class Noise(layers.Layer):
    """Adds numbers of NumPy's, others at each call."""

    def call(self, x):
        return x + ops.convert_to_tensor(np.random.normal(size=DIM).astype("float32"))


def chain(*blocks):
    x = inputs = keras.Input((LENGTH, DIM))
    for block in blocks:
        x = block(x)
    return keras.Model(inputs, x)


GUILTY = {
    "a shape": lambda: Scaled(by="a shape", name="guilty"),
    "an attribute": lambda: Scaled(by="an attribute", name="guilty"),
    "a config": lambda: Rigid(by="a fixed number", name="guilty"),
    "a loss": regularized,
}


def with_one(kind):
    """A model of three groups, one of which cannot be cut."""
    keras.utils.set_random_seed(0)
    fine = Scaled(by="a fixed number"), Scaled(by="a fixed number")
    return chain(GUILTY[kind](), *fine)


@pytest.mark.parametrize(
    "kind, dtype",
    [
        *((kind, "float32") for kind in GUILTY),
        ("a shape", "bfloat16"),
        ("an attribute", "mixed_float16"),
    ],
)
def test_the_guilty_group_is_named(kind, dtype, request):
    request.addfinalizer(lambda: keras.config.set_dtype_policy("float32"))
    keras.config.set_dtype_policy(dtype)
    model = with_one(kind)
    groups = ki.find_groups(model)
    assert len(groups) == 3
    before = [to_numpy(variable) for variable in model.variables]
    why = "config of 'guilty' makes.*" * (kind == "a config")
    with pytest.raises(ArgumentError, match=f"of guilty.*{why}groups=lambda"):
        try_groups(model, groups)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
    try_groups(model, [group for group in groups if "guilty" not in group.name])


def fit(model):
    model.compile("adam", "mse")
    x = np.ones((4, LENGTH, DIM), "float32")
    model.fit(x, x, verbose=0, callbacks=[ki.IdeaPruneCallback(4, 0, 1)])


def compact_in_place(model):
    for ffn in ki.find_ffns(model):
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) % 2)
    ki.compact(model, in_place=True)


CALLERS = {
    "fit": fit,
    "compact": compact_in_place,
    "shrink": lambda model: ki.shrink(model, {"neurons": 4}, method="magnitude"),
}


@pytest.mark.parametrize("caller", CALLERS)
def test_who_tries(caller):
    with pytest.raises(ArgumentError, match="of guilty.*groups=lambda"):
        CALLERS[caller](with_one("a shape"))


def test_a_model_whose_outputs_are_no_numbers_once_masked():
    block = Inverse(by="a fixed number", name="guilty")
    block.up.activation = keras.activations.linear
    model = chain(block)
    groups = ki.find_groups(model)
    block.told = True
    with pytest.raises(ArgumentError, match="guilty.*none of its outputs is finite"):
        try_groups(model, groups)


@pytest.mark.parametrize("block, why", [(Fails, "no memory"), (Noise, "random")])
def test_what_cannot_be_tried_is_said(block, why):
    block = block()
    model = chain(block, Scaled(by="a fixed number"))
    groups = ki.find_groups(model)
    block.told = True
    with pytest.warns(UserWarning, match=f"not tested on an example.*{why}"):
        try_groups(model, groups)


def test_example():
    """Tokens of the smallest embedding that an input reaches, and padding."""
    ids, ages = keras.Input((64,), dtype="int32"), keras.Input((64,), dtype="int32")
    of_ids, of_ages = layers.Embedding(50, 2), layers.Embedding(3, 2)
    inner = keras.Model(ids, of_ids(ids))
    model = keras.Model([ids, ages], inner(ids) + of_ages(ages))
    one, two = example_arrays(model, 8)
    for array, rows in ((one, 50), (two, 3)):
        assert array.shape == (2, 64) and array.dtype == "int32"
        assert set(array[0]) <= set(range(1, rows)) and len(set(array[0])) > rows / 3
        assert not array[1, 48:].any() and array[1, :48].all()
