"""Which neurons of a user's model are found, and why others are not."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_idea as ki
from keras_idea.groups.dense import find_dense_groups
from tests.support.helpers import to_numpy
from tests.support.masks import prune_by_hand
from tests.support.users_models import USERS_MODELS, inputs_of

of_users = pytest.mark.parametrize("make", USERS_MODELS, ids=lambda make: make.__name__)


@of_users
def test_in_a_users_model(make):
    model = make()
    before = [to_numpy(v) for v in model.variables]
    nodes = [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    groups = find_dense_groups(model).groups
    assert [group.hidden_dim for group in groups] == USERS_MODELS[make]
    # It has left nothing behind.
    assert nodes == [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
    # What cutting out relies on, by the numbers of the model itself: a neuron that is
    # not read and one that is not made are the same.
    rng = np.random.default_rng(0)
    inputs = inputs_of(model, rng)
    for layer in [layer for group in groups for layer in group.readers]:
        kernel = to_numpy(layer.kernel)
        kernel[::2] = 0
        layer.kernel.assign(kernel)
    unread = keras.tree.map_structure(to_numpy, model(inputs))
    for layer in [layer for group in groups for layer in group.makers]:
        kernel = to_numpy(layer.kernel)
        kernel[:, ::2] = 0
        layer.kernel.assign(kernel)
        if layer.bias is not None:
            bias = rng.normal(size=layer.bias.shape)
            bias[1::2] = to_numpy(layer.bias)[1::2]
            layer.bias.assign(bias)
    unmade = keras.tree.map_structure(to_numpy, model(inputs))
    keras.tree.map_structure(np.testing.assert_array_equal, unread, unmade)


def two_layers(between, activation="relu"):
    inputs = keras.Input((4, 6))
    hidden = keras.layers.Dense(8, activation, name="up")(inputs)
    read = keras.layers.Dense(6, name="down")
    return keras.Model(inputs, between(inputs, hidden, read))


@pytest.mark.parametrize(
    "between, reason",
    [
        (lambda x, h, down: (down(h), h), "is an output of the model"),
        (lambda x, h, down: down(h[..., ::-1]), "operation GetItem"),
        (lambda x, h, down: down(ops.softmax(h)), "operation Softmax"),
        (lambda x, h, down: down(keras.layers.Activation("softmax")(h)), "softmax of"),
        (lambda x, h, down: down(keras.layers.Softmax()(h)), "Softmax"),
        (lambda x, h, down: down(h) + ops.matmul(h, down.kernel), "Matmul"),
        (lambda x, h, down: down(h / ops.sum(h, -1, keepdims=True)), "Sum|broadcasts"),
        (lambda x, h, down: down(h * np.arange(8.0)), "a number of its own"),
        (lambda x, h, down: down(h) + ops.mean(h), "operation Mean"),
        (lambda x, h, down: down(keras.layers.LayerNormalization()(h)), "LayerNorm"),
        (lambda x, h, down: down(keras.layers.Reshape((4, 8))(h)), "Reshape"),
    ],
)
def test_left_out(between, reason):
    found = find_dense_groups(two_layers(between))
    assert not found.groups
    assert re.search(reason, found.left_out["up"])


def test_neurons_added_to_an_input_are_left_out():
    inputs = keras.Input((8,))
    hidden = inputs + keras.layers.Dense(8, name="up")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
    reason = find_dense_groups(model).left_out["up"]
    assert reason == "it is combined with an input of the model"


@pytest.mark.parametrize(
    "between",
    [
        lambda x, h, down: down(h + 1.0),
        lambda x, h, down: down(ops.maximum(h, 0.5) * h),
        lambda x, h, down: down(keras.layers.Dropout(0.5)(h)),
        lambda x, h, down: down(ops.cast(h, "float32") ** 2),
        lambda x, h, down: down(h) + down(ops.relu(h)),
        lambda x, h, down: down(h * keras.layers.Dense(8)(x)),
    ],
)
def test_taken(between):
    (group,) = find_dense_groups(two_layers(between)).groups
    assert group.hidden_dim == 8


class Foreign(keras.layers.Layer):
    """One that reads the numbers of its tensors, which symbolic ones have none of."""

    def __init__(self):
        super().__init__()
        self.block = keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(6)])
        self.out = keras.layers.Dense(6)

    def build(self, shape):
        self.block.build(shape)
        self.out.build(shape)

    def call(self, x):
        return self.out(self.block(ops.convert_to_tensor(ops.convert_to_numpy(x))))

    def compute_output_shape(self, shape):
        return shape


def test_what_cannot_be_called_is_looked_into_by_its_parts():
    inputs = keras.Input((6,))
    model = keras.Model(inputs, Foreign()(keras.layers.Dense(6)(inputs)))
    found = find_dense_groups(model)
    assert [group.hidden_dim for group in found.groups] == [8]
    assert len(found.left_out) == 3


@pytest.mark.parametrize(
    "activation", ["softmax", "log_softmax", lambda h: h - ops.mean(h, -1)[..., None]]
)
def test_an_activation_across_neurons_is_left_out(activation):
    found = find_dense_groups(two_layers(lambda x, h, down: down(h), activation))
    assert not found.groups
    assert re.search("its activation .* each number alone", found.left_out["up"])


@pytest.mark.parametrize(
    "activation", ["gelu", "linear", "leaky_relu", "elu", lambda h: ops.relu(h) ** 2]
)
def test_an_activation_of_each_neuron_is_taken(activation):
    model = two_layers(lambda x, h, down: down(h), activation)
    assert [group.hidden_dim for group in find_dense_groups(model).groups] == [8]


def test_names_that_come_later_are_as_without_it():
    model = two_layers(lambda x, h, down: down(h), lambda h: ops.softmax(h))
    keras.layers.Softmax()  # so that the next one's name has a number
    before = int(keras.layers.Softmax().name.rpartition("_")[2])
    find_dense_groups(model)
    assert keras.layers.Softmax().name == f"softmax_{before + 1}"


def test_layers_called_on_what_the_model_holds_are_followed():
    """The nodes of a graph, say; the model's input only says which of them to take."""

    class Graph(keras.Model):
        def __init__(self):
            super().__init__()
            nodes = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
            self.nodes = keras.ops.convert_to_tensor(nodes)
            dense = keras.layers.Dense
            self.ffn = keras.Sequential([dense(16, "relu"), dense(8)])
            self.up, self.down = dense(12, "relu"), dense(3)

        def call(self, index):
            x = self.ffn(self.nodes)
            return self.down(self.up(keras.ops.take(x, index, axis=0)))

    model, index = Graph(), np.array([0, 3, 3])
    model(index)
    assert list(ki.explain(model).taken.values()) == [16, 12]
    for ffn in ki.find_ffns(model):
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) % 2)
    narrow = ki.compact(model)
    answers = [keras.ops.convert_to_numpy(m(index)) for m in (model, narrow)]
    np.testing.assert_allclose(*answers, atol=1e-6)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(narrow)] == [8, 6]
