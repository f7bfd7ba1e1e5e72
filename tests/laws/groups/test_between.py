"""What may lie between two Dense layers, by the numbers of the model itself.

A model with pruned neurons is zero in them; narrowed in place it must give the same
outputs, in training too. What must not lie there is refused, by its name.
"""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import keras_idea as ki
from keras_idea._step.row_ops import zero_rows
from tests.support.helpers import to_numpy

WIDTH, LENGTH, KEPT = 12, 6, 8
BATCH_NORM = layers.BatchNormalization


class Of(layers.Layer):
    """A layer of a user's own that has no weights: a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


class InTraining(layers.Layer):
    def call(self, x, training=False):
        return x - ops.mean(x, -1, keepdims=True) if training else x


class WithLoss(layers.Layer):
    def call(self, x):
        self.add_loss(ops.mean(x**2))
        return x


class OwnNorm(layers.BatchNormalization):
    pass


def model_of(*between, activation="tanh"):
    x = inputs = keras.Input((LENGTH, 5))
    for layer in (layers.Dense(WIDTH, activation, name="up"), *between):
        x = layer(x)
    model = keras.Model(inputs, layers.Dense(3, name="down")(x))
    rng = np.random.default_rng(0)
    for variable in model.weights:
        values = rng.normal(size=variable.shape)
        positive = "variance" in variable.name or "std" in variable.name
        variable.assign(abs(values) + 0.1 if positive else values)
    return model


def pruned(model):
    """Its FFN, of which every third neuron is made zero."""
    (ffn,) = ki.find_ffns(model)
    mask = (np.arange(WIDTH) % 3 > 0).astype("float32")
    zero_rows(ffn.cuts(), ops.convert_to_tensor(mask))
    assert ffn.width == KEPT
    return ffn, mask


# Whether they give zeros for zeros; "random": in training it is another noise.
TAKEN = {
    "batch_norm": (lambda: [BATCH_NORM()], True),
    "two batch_norms": (lambda: [BATCH_NORM(), layers.ReLU(), BATCH_NORM()], True),
    "no scale": (lambda: [BATCH_NORM(scale=False)], False),
    "axis": (lambda: [BATCH_NORM(axis=2)], True),
    "prelu": (lambda: [layers.PReLU("ones")], True),
    "prelu of places": (lambda: [layers.PReLU("ones", shared_axes=[1])], True),
    "pooled": (lambda: [layers.AveragePooling1D(2)], True),
    "repeated": (lambda: [layers.GlobalMaxPooling1D(), layers.RepeatVector(2)], True),
    "padded": (lambda: [layers.ZeroPadding1D(1), layers.Cropping1D(2)], True),
    "reshaped": (lambda: [layers.Reshape((2, 3, -1))], True),
    "shifted": (lambda: [layers.Rescaling(0.5, 1.0)], False),
    "noise": (lambda: [layers.GaussianNoise(0.5)], "random"),
    "l2": (lambda: [layers.ActivityRegularization(l2=0.1)], True),
    "absolute": (lambda: [Of(ops.abs)], True),
    "lambda": (lambda: [layers.Lambda(lambda x: ops.relu(x) ** 2)], True),
}


ON_EACH = ("batch_norm", "absolute", "noise", "pooled")
ROWS = [
    pytest.param(*row, id=name, marks=pytest.mark.daily("torch", "jax", "tensorflow"))
    if name in ON_EACH
    else pytest.param(*row, id=name)
    for name, row in TAKEN.items()
]


@pytest.mark.parametrize("between, preserves_zero", ROWS)
def test_masked_equals_narrow(between, preserves_zero):
    model = model_of(*between())
    ffn, _ = pruned(model)
    x = np.random.default_rng(1).normal(size=(4, LENGTH, 5)).astype("float32")
    # Batch normalization forgets nothing in training that it would need at rest.
    masked = [to_numpy(model(x, training=training)) for training in (True, False)]
    state = [to_numpy(v) for v in model.non_trainable_variables]
    ki.compact(model, in_place=True)
    assert ffn.hidden_dim == KEPT
    narrow = to_numpy(model(x, training=False))
    np.testing.assert_allclose(narrow, masked[1], rtol=2e-5, atol=2e-5)
    if preserves_zero == "random":
        return
    assert len(state) == len(model.non_trainable_variables)
    again = to_numpy(model(x, training=True))
    np.testing.assert_allclose(again, masked[0], rtol=2e-5, atol=2e-5)


def mean_square(array):
    return ops.mean(array**2)


REFUSED = [
    (lambda: BATCH_NORM(axis=1), "'batch_normalization' normalizes over it"),
    (lambda: BATCH_NORM(epsilon=0.0), "epsilon=0, which makes NaN of a pruned"),
    (lambda: OwnNorm(), "OwnNorm 'own_norm' normalizes over it"),
    (lambda: layers.LayerNormalization(), "LayerNormalization 'layer_normalization'"),
    (lambda: layers.Masking(0.3), "Any reduces it"),
    (lambda: layers.Rescaling([1.0] * WIDTH), "Rescaling .*fewer"),
    (
        lambda: layers.GlobalAveragePooling1D(data_format="channels_first"),
        "'global_average_pooling1d' joins it",
    ),
    (lambda: layers.LSTM(WIDTH), "LSTM 'lstm' mixes, reads or makes it"),
    (
        lambda: layers.ReLU(activity_regularizer=mean_square),
        "an activity regularizer of 're_lu'",
    ),
    (lambda: Of(lambda x: ops.sort(x, -1)), "Sort mixes it"),
    (lambda: InTraining(), "Mean reduces it"),
    (lambda: WithLoss(), "Mean reduces it"),
]


@pytest.mark.parametrize("make, reason", REFUSED)
def test_what_is_not_on_each_neuron_is_named(make, reason):
    explained = ki.explain(model_of(make()))
    assert not explained.taken
    assert re.search(reason, explained.left_out["up"])


@pytest.mark.parametrize("kind", ["heads", "dense"])
def test_a_frozen_bias_stays(kind):
    """On jax it cannot be assigned to in a step, which ended in a TypeError."""
    inputs = keras.Input((3, 8))
    if kind == "heads":
        holder = layers.MultiHeadAttention(4, 2)
        x, bias = holder(inputs, inputs), holder.value_dense.bias
    else:
        up = layers.Dense(8, "gelu")
        x, bias = layers.Dense(8)(up(inputs)), up.bias
    bias.trainable = False
    bias.assign(np.ones(bias.shape))
    model = keras.Model(inputs, x)
    model.compile(keras.optimizers.SGD(0.01, global_clipnorm=0.1), "mse")
    axis = "kv_groups" if kind == "heads" else "neurons"
    prune = ki.IdeaPruneCallback(
        targets={axis: 2}, begin_step=1, prune_steps=1, compact="off"
    )
    data = np.random.default_rng(0).normal(size=(8, 3, 8)).astype("float32")
    model.fit(data, data, batch_size=4, verbose=0, callbacks=[prune])
    np.testing.assert_array_equal(to_numpy(bias), np.ones(bias.shape))
    (group,) = ki.find_groups(model, [axis])
    assert group.width == 2
    narrow = ki.compact(model)
    assert [g.hidden_dim for g in ki.find_groups(narrow, [axis])] == [2]
    np.testing.assert_allclose(
        to_numpy(narrow(data)), to_numpy(model(data)), rtol=1e-5, atol=1e-5
    )
