"""Half the batch and twice `gradient_accumulation_steps`: the step means the same."""

import json

import keras
import numpy as np
import pytest

from keras_idea.callbacks.checkpoint.model_state import (
    restore_state,
    state_arrays,
    state_facts,
)
from keras_idea.keras_private.optimizer_variables import apply_count, innermost
from tests.support.helpers import to_numpy

o = keras.optimizers
STEPS = 6


def model_with(optimizer):
    """A small model whose optimizer is built."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def give_values(model, calls):
    """Every variable of its optimizer one of its own; the count so many calls."""
    rng = np.random.default_rng(calls)
    for variable in model.optimizer.variables:
        if "int" not in variable.dtype:
            variable.assign(rng.uniform(size=variable.shape))
    apply_count(innermost(model.optimizer)).assign(calls)


def saved(model):
    """What a checkpoint holds: facts as JSON, arrays by name."""
    arrays = {name: read() for name, read in state_arrays(model)}
    return json.loads(json.dumps(state_facts(model))), arrays


def resume(model, facts, arrays, **told):
    shapes = {name: array.shape for name, array in arrays.items()}
    restore_state(model, facts, shapes, arrays.__getitem__, **told)


def adam(batches, **arguments):
    return o.Adam(0.1, gradient_accumulation_steps=batches, **arguments)


def scaled(batches):
    return o.LossScaleOptimizer(adam(batches))


def amsgrad(batches):
    return adam(batches, amsgrad=True)


SLOTS = ("_momentums", "_velocities", "_velocity_hats")


@pytest.mark.parametrize("make", [amsgrad, scaled])
@pytest.mark.parametrize("was, now", [(2, 4), (4, 2), (None, 2)])
def test_the_step_and_the_slots_stay(make, was, now):
    old, new = model_with(make(was)), model_with(make(now))
    give_values(old, STEPS * (was or 1))
    give_values(new, 5)  # it has trained already: sums of gradients lie there
    resume(new, *saved(old))
    assert int(new.optimizer.iterations) == STEPS
    assert int(apply_count(innermost(new.optimizer)).value) == STEPS * (now or 1)
    ours, theirs = innermost(new.optimizer), innermost(old.optimizer)
    for name in SLOTS[: 3 if make is amsgrad else 2]:
        for a, b in zip(getattr(ours, name), getattr(theirs, name), strict=True):
            np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
    if make is scaled:
        scales = [to_numpy(m.optimizer.dynamic_scale) for m in (new, old)]
        assert scales[0] == scales[1]
    for variable in getattr(ours, "_accumulated_gradients", []):
        assert not to_numpy(variable).any()
    for a, b in zip(new.variables, old.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


def with_average(batches):
    return adam(batches, use_ema=True)


@pytest.mark.parametrize(
    "make, calls, message",
    [
        (adam, 13, "is 1 of 2 batches into an optimizer step. .*=4, and 2 in the"),
        (with_average, 12, r"averages the weights of each batch.*Compile with .*=2\."),
    ],
)
def test_what_would_not_be_the_same_is_rejected(make, calls, message):
    old, new = model_with(make(2)), model_with(make(4))
    give_values(old, calls)
    before = [to_numpy(v) for v in new.variables]
    with pytest.raises(ValueError, match=message):
        resume(new, *saved(old))
    for variable, value in zip(new.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
