"""The jitted train step of a model, found and lowered as `fit` does it; on jax."""

import keras
import pytest

from keras_idea.keras_private.models import make_train_function
from keras_idea.keras_private.train_step import (
    lower,
    state_variables,
    train_step_of,
)
from tests.helpers import residual_model

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
