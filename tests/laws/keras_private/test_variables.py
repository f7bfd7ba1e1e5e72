"""What Keras's variables, its generator and a call under way are known to do inside."""

import keras
import numpy as np

from keras_idea.keras_private.call_context import (
    call_without_values,
    current_pass,
    in_train_step,
    is_training,
    mask_of,
)
from keras_idea.keras_private.optimizer_variables import build_without_values
from keras_idea.keras_private.variables import give_value, global_seed, without_values
from tests.support.helpers import to_numpy


class Asking(keras.layers.Layer):
    """A layer that notes what is known inside of its call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.inside = []

    def call(self, x):
        self.inside.append((is_training(), current_pass(), mask_of(x)))
        return x


X = np.ones((2, 3), "float32")


def test_whether_a_forward_pass_trains():
    """As the outermost layer was told; told nothing, in a train step alone."""
    inner = Asking()
    model = keras.Sequential([keras.Input((3,)), inner])
    inner.inside.clear()
    model(X, training=True)
    model(X, training=False)
    model(X)
    in_train_step(model, X)
    in_train_step(model, X, training=False)
    model(X)
    found = [inside[0] for inside in inner.inside]
    assert found == [True, False, False, True, False, False]
    assert is_training()  # where no layer is being called, a backward pass may repeat


def test_forward_passes_are_told_apart():
    first, second = Asking(), Asking()
    model = keras.Sequential([keras.Input((3,)), first, second])
    first.inside.clear(), second.inside.clear()
    model(X), model(X)
    here, there = ([inside[1] for inside in x.inside] for x in (first, second))
    assert here[0] is there[0] and here[1] is there[1]
    assert here[0] is not here[1] and here[0] is not None
    assert current_pass() is None


def test_stateless_call_is_one_forward_pass():
    first, second = Asking(), Asking()
    with keras.StatelessScope() as scope:
        first(X), second(X)
    assert first.inside[0][1] is scope and second.inside[0][1] is scope


def test_mask_of_a_tensor_is_known():
    layer = Asking()
    masked = keras.layers.Masking()(np.array([[[1.0], [0.0]]], "float32"))
    layer(masked)
    np.testing.assert_array_equal(to_numpy(layer.inside[0][2]), [[True, False]])
    assert mask_of(keras.ops.ones(3)) is None


def test_model_is_called_without_values():
    layer = Asking()
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(2)])
    layer.inside.clear()
    outputs = call_without_values(model, keras.KerasTensor((8, 3)))
    assert isinstance(outputs, keras.KerasTensor) and outputs.shape == (8, 2)
    assert [inside[0] for inside in layer.inside] == [True]


def test_variable_takes_a_value_of_another_shape():
    variable = keras.Variable(np.zeros((4, 3), "float32"), name="kernel")
    give_value(variable, keras.ops.ones((2, 3)))
    assert tuple(variable.shape) == (2, 3) == tuple(variable.value.shape)
    assert variable.name == variable.path == "kernel"
    variable.assign(np.full((2, 3), 5.0, "float32"))
    np.testing.assert_array_equal(to_numpy(variable), np.full((2, 3), 5.0))


def test_models_are_made_without_values():
    with without_values():
        bare = keras.layers.Dense(2)
        bare.build((1, 4))
    full = keras.layers.Dense(2)
    full.build((1, 4))
    assert [v._value is None for v in bare.variables] == [True, True]
    assert bare.kernel.shape == (4, 2)
    assert [v._value is None for v in full.variables] == [False, False]


def test_an_optimizer_is_built_without_values():
    with without_values():
        bare = keras.layers.Dense(2)
        bare.build((1, 4))
    optimizer = keras.optimizers.AdamW(1e-3)
    build_without_values(optimizer, bare.trainable_variables)
    slots = [v for v in optimizer.variables if len(v.shape) == 2]
    assert [(tuple(v.shape), v._value) for v in slots] == 2 * [((4, 2), None)]


def test_global_seed_decides_what_is_drawn():
    keras.random.normal((2,))
    state = to_numpy(global_seed().value)
    first = to_numpy(keras.random.uniform((3,)))
    moved = to_numpy(global_seed().value)
    assert not np.array_equal(moved, state)
    if keras.backend.backend() != "torch":  # draws from torch's own, seeded by it
        global_seed().assign(state)
        np.testing.assert_array_equal(to_numpy(keras.random.uniform((3,))), first)
