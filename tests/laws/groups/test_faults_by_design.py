"""What went wrong while a mask lay in three places and pruned rows were multiplied.

Each was met once: a callback that reads changed weights; zeros times NaN stayed NaN.
"""

import keras
import numpy as np
import pytest
from keras import ops

import keras_idea as ki
from tests.support.helpers import to_numpy

BATCH, TARGET = 8, 5
FIT = {"batch_size": BATCH, "shuffle": False, "verbose": 0}


class Looks(keras.callbacks.Callback):
    """Reads whatever can be read of the neurons, after each batch."""

    def on_train_batch_end(self, batch, logs=None):
        for ffn in ki.find_ffns(self.model):
            assert ffn.width == len(ffn.kept_neurons()) == int(ops.sum(ffn.mask))
            to_numpy(ffn.scores), to_numpy(ffn.importance())


def ffn_of(kind, **arguments):
    """An FFN that is not 0 for a neuron of zeros: a function of a tensor."""
    if kind == "own":
        return ki.PrunableFFN(16, "sigmoid", use_bias=True, **arguments)

    def dense(x):
        hidden = keras.layers.Dense(16, "sigmoid", **arguments)(x)
        return keras.layers.Dense(8, **arguments)(hidden)

    return dense


def model_of(kind, **arguments):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 8))
    model = keras.Model(
        inputs, keras.layers.Dense(1)(ffn_of(kind, **arguments)(inputs))
    )
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(0.4 * rng.normal(size=variable.shape))
    return model


def only_the_ffn(ffn):
    return ffn.hidden_dim == 16 or ffn.full_dim == 16


def trained(model, data, compact, callbacks=(), **optimizer):
    model.compile(keras.optimizers.AdamW(0.02, **optimizer), "mse")
    prune = ki.IdeaPruneCallback(TARGET, 1, 8, compact=compact, groups=only_the_ffn)
    callbacks = [prune, *callbacks]
    return model.fit(*data, epochs=2, callbacks=callbacks, **FIT).history["loss"]


KINDS = ("own", "dense")
of_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("kind", ["own"])
def test_looking_changes_no_bit(kind, data):
    alone, watched = model_of(kind), model_of(kind)
    losses = [
        trained(alone, data, "off", global_clipnorm=0.05),
        trained(watched, data, "off", [Looks()], global_clipnorm=0.05),
    ]
    assert losses[0] == losses[1]
    for one, other in zip(alone.weights, watched.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


class GroupLasso(keras.regularizers.Regularizer):
    """Its gradient at a row of zeros is 0 / 0."""

    def __call__(self, kernel):
        return 1e-3 * (
            ops.sum(ops.sqrt(ops.sum(ops.square(kernel), 0)))
            + ops.sum(ops.sqrt(ops.sum(ops.square(kernel), 1)))
        )

    def get_config(self):
        return {}


@of_kinds
def test_a_regularizer_that_is_nan_at_zero(kind, data):
    model = model_of(kind, kernel_regularizer=GroupLasso())
    losses = trained(model, data, "off")
    assert np.isfinite(losses).all()
    assert all(np.isfinite(to_numpy(v)).all() for v in model.weights)
    (ffn,) = filter(only_the_ffn, ki.find_ffns(model))
    assert ffn.width == TARGET
