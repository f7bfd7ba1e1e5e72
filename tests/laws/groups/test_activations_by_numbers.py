"""Activations that Keras's symbolic tensors cannot pass through, or nobody listed."""

import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea.functional.by_numbers import PrunedNumbers, why_not_each_number
from tests.support.helpers import to_numpy

BACKEND, WIDTH = keras.backend.backend(), 12
if BACKEND == "jax":
    import jax

    gelu, silu, softmax = jax.nn.gelu, jax.nn.silu, jax.nn.softmax
elif BACKEND == "tensorflow":
    import tensorflow as tf

    gelu, silu, softmax = tf.nn.gelu, tf.nn.silu, tf.nn.softmax
else:
    import torch

    gelu, silu = torch.nn.functional.gelu, torch.nn.functional.silu
    softmax = functools.partial(torch.softmax, dim=-1)

KINK = functools.partial(keras.activations.leaky_relu, negative_slope=0.3)
STEPS = functools.partial(keras.activations.threshold, threshold=0.5, default_value=2.0)


def model_of(activation, layer=False):
    x = inputs = keras.Input((5,))
    if layer:
        x = layers.Dense(WIDTH, name="up")(x)
        x = layers.Activation(activation, name="act")(x)
    else:
        x = layers.Dense(WIDTH, activation, name="up")(x)
    return keras.Model(inputs, layers.Dense(3)(x))


@dataclasses.dataclass
class Scaled:
    """One that has no hash."""

    scale: float

    def __call__(self, x):
        return ops.tanh(self.scale * x)


# What they make of 0.
TAKEN = {
    "an object": (Scaled(0.5), 0),
    "gelu": (gelu, 0),
    "lambda": (lambda x: ops.relu(x) ** 2, 0),
    "by hand": (lambda x: x / (1 + ops.exp(-x)), 0),
    "partial": (KINK, 0),
    "steps": (STEPS, 2),
    "a layer": (layers.LeakyReLU(0.2), 0),
    "squareplus": ("squareplus", 2),
}


@pytest.mark.parametrize("layer", [False, True], ids=["Dense", "Activation"])
@pytest.mark.parametrize("function, of_zero", TAKEN.values(), ids=TAKEN.keys())
def test_a_function_of_each_number_is_found(function, of_zero, layer):
    model = model_of(function, layer)
    (ffn,) = ki.find_ffns(model)
    assert (ffn.name, ffn.hidden_dim) == ("up", WIDTH)
    assert ffn.preserves_zero is (of_zero == 0)
    for variable in model.weights:
        values = np.random.default_rng(0).normal(size=variable.shape)
        neurons = list(variable.shape).index(WIDTH) if WIDTH in variable.shape else None
        if neurons is not None:
            np.moveaxis(values, neurons, 0)[::2] = 0
        variable.assign(values)
    x = np.random.default_rng(1).normal(size=(4, 5)).astype("float32")
    masked = to_numpy(model(x))
    ki.compact(model, in_place=True)
    assert ffn.hidden_dim == WIDTH // 2
    np.testing.assert_allclose(to_numpy(model(x)), masked, rtol=2e-5, atol=2e-5)


def random_numbers(x):
    return keras.random.dropout(x, 0.5)


class Callable:
    def __call__(self, x):
        return x.nothing_such


REFUSED = [
    (softmax, "does not act on each number alone"),
    (lambda x: x / ops.max(x), "<lambda>.* does not act on each number alone"),
    (lambda x: x - ops.mean(x, 0), "does not act on each number alone"),
    (lambda x: ops.cumsum(x, 0), "does not act on each number alone"),
    (lambda x: x * np.arange(x.shape[-1]), "does not act on each number alone"),
    (
        lambda x: ops.where(ops.all(x == 0, -1, keepdims=True), 1.0, x),
        "does not act on each number alone",
    ),
    (random_numbers, "random_numbers.* makes other numbers each time"),
    (lambda x: ops.cast(x, "int32"), "returns another shape or dtype than it is given"),
    (ops.reciprocal, "reciprocal.* makes what is not finite of a pruned neuron"),
    (lambda x: ops.sqrt(ops.abs(x)), "has no finite slope for a pruned neuron"),
    (
        Callable(),
        "Callable.* cannot be called on numbers .AttributeError: .*nothing_such",
    ),
    (layers.PReLU(), "PReLU.* has weights or seeds of its own"),
]


@pytest.mark.parametrize("function, reason", REFUSED)
def test_another_function_is_named(function, reason):
    for layer in (False, True):
        explained = ki.explain(model_of(function, layer))
        assert not explained.taken
        assert re.search(reason, explained.left_out["up"])


@pytest.mark.daily("torch", "tensorflow")
def test_asking_changes_no_random_number():
    drawn = []
    for asks in (True, False):
        keras.utils.set_random_seed(0)
        keras.random.normal((2,))
        if asks:
            assert why_not_each_number(random_numbers, (2, WIDTH))
        drawn.append(to_numpy(keras.random.normal((4,))))
    np.testing.assert_array_equal(*drawn)


def test_one_that_reads_a_variable_is_refused():
    """A gate of 0 hides what it will do once it is trained."""
    gate = keras.Variable(0.0)
    across = model_of(lambda x: ops.relu(x) + gate * ops.mean(x, -1, keepdims=True))
    assert "it reads a variable" in " ".join(ki.explain(across).left_out.values())


@pytest.mark.parametrize("layer", [False, True])
def test_a_fixed_length_takes_no_memory(layer):
    """A function was called on random numbers of the tensor's full shape."""
    sizes = []

    def noted(x):
        sizes.append(int(np.prod(x.shape)))
        return ops.relu(x) ** 2

    x = inputs = keras.Input((4096, 5))
    x = layers.Dense(WIDTH, None if layer else noted, name="up")(x)
    x = layers.Activation(noted)(x) if layer else x
    model = keras.Model(inputs, layers.Dense(3)(x))
    sizes.clear()
    assert ki.explain(model).taken == {"up": WIDTH}
    whole = (
        2 * 4096 * WIDTH
    )  # of the symbolic tensors, and what is called without values
    assert sum(size < whole for size in sizes) > 5
    assert max(size for size in sizes if size != whole) < 1000


def test_rounding_is_no_other_number():
    """torch's gelu differs by 1.2e-6 with the place of a number in an array."""
    shape = (4, 16, 64)
    given, made = keras.KerasTensor(shape), keras.KerasTensor(shape)
    assert why_not_each_number(gelu, shape) is None
    assert PrunedNumbers().make(gelu, [given], [made]) is None
