"""The jitted train step of a model, found and lowered as `fit` does it; on jax."""

import functools

import keras
import pytest

from keras_idea.keras_private.models import make_train_function
from keras_idea.keras_private.train_step import (
    has_own_train_step,
    lower,
    state_variables,
    train_step_of,
)
from tests.support.helpers import residual_model

JAX = keras.backend.backend() == "jax"


@pytest.mark.skipif(not JAX, reason="on jax alone a train step is lowered")
def test_lowered_as_fit_does_it(data):
    model = residual_model()
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    make_train_function(model, known=True)
    step = train_step_of(model)
    found = []
    step.look_up(lambda lowered: found.append(lowered.as_text()))
    model.fit(*data, batch_size=8, verbose=0)
    assert found == [lower(model, step.data).as_text()]
    counts = [len(group) for group in state_variables(model)]
    # Two moments each, a count and a rate; the two numbers of the mean loss.
    assert counts == [7, len(model.non_trainable_variables), 16, 2]


def test_not_found_where_keras_made_it(data):
    model = residual_model()
    model.compile("adam", "mse")
    model.fit(*data, batch_size=8, verbose=0)
    assert train_step_of(model) is None
    make_train_function(model)
    assert train_step_of(model) is None
    make_train_function(model, known=True)
    assert (train_step_of(model) is not None) == JAX
    model.fit(*data, batch_size=8, verbose=0)


class Own(keras.Model):
    def train_step(self, *args, **kwargs):
        return super().train_step(*args, **kwargs)


def test_whose_train_step_it_is():
    plain = residual_model()
    own = Own(plain.inputs, plain.outputs)
    assert not has_own_train_step(plain) and has_own_train_step(own)
    assert not has_own_train_step(keras.Sequential([keras.layers.Dense(1)]))
    for model in (plain, own):
        before = has_own_train_step(model)
        model.train_step = functools.partial(model.train_step)
        assert has_own_train_step(model) == before
    plain.train_step = lambda *args: None
    assert has_own_train_step(plain)
