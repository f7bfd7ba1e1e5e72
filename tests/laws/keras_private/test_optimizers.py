"""What Keras's optimizers are known to do inside."""

import keras
import numpy as np
import pytest

from keras_idea.keras_private.optimizer_variables import (
    accumulated_gradient,
    apply_count,
    change_mark,
    copy_decay_exclusions,
    gradient_sums,
    index_of,
    innermost,
    parts,
    rate_source,
    rename_key,
    track_variable,
    tracked_variables,
    train_others,
    trained_variables,
    untrack_variable,
    variable_key,
)
from keras_idea.keras_private.variables import give_value
from tests.support.helpers import to_numpy
from tests.support.optimizers import needs_several

o = keras.optimizers
ONES = np.ones((2,), "float32")


def two_variables():
    return [keras.Variable(ONES, name=name) for name in ("a", "b")]


def step(optimizer, variables, gradient=ONES):
    grads = [keras.ops.convert_to_tensor(gradient) for _ in variables]
    optimizer.apply(grads, variables)


@needs_several
def test_parts_of_wrapping_optimizers_are_known():
    adam, sgd = o.Adam(), o.SGD()
    scaled = o.LossScaleOptimizer(adam)
    assert parts(scaled) == [scaled, adam] and innermost(scaled) is adam
    both = o.MultiOptimizer(lambda v: adam if v.name == "a" else sgd)
    both.build(two_variables())
    assert parts(both) == [both, adam, sgd]
    assert parts(sgd) == [sgd] and innermost(sgd) is sgd


def test_calls_of_apply_are_counted():
    optimizer, variables = o.SGD(0.1, gradient_accumulation_steps=2), two_variables()
    optimizer.build(variables)
    for _ in range(3):
        step(optimizer, variables)
    assert int(apply_count(optimizer).value) == 3
    assert int(optimizer.iterations) == 1


def test_learning_rate_is_known_as_it_was_given():
    schedule = o.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert rate_source(o.SGD(schedule)) is schedule
    assert isinstance(rate_source(o.SGD(0.1)), keras.Variable)


def test_trained_variables_are_listed_in_their_order():
    optimizer, (a, b) = o.SGD(0.1), two_variables()
    assert trained_variables(optimizer) == []
    optimizer.build([a, b])
    found = trained_variables(optimizer)
    assert found[0] is a and found[1] is b
    assert (index_of(optimizer, a), index_of(optimizer, b)) == (0, 1)
    assert index_of(optimizer, keras.Variable(ONES)) is None


def test_tracked_variables_leave_out_those_of_wrapped_optimizers():
    scaled = o.LossScaleOptimizer(o.Adam())
    scaled.build(two_variables())
    names = {v.name for v in tracked_variables(scaled)}
    assert {"step_counter", "dynamic_scale"} < names
    assert len(scaled.variables) > len(tracked_variables(scaled))


def test_accumulated_gradients_are_known():
    optimizer, variables = o.SGD(0.1, gradient_accumulation_steps=3), two_variables()
    optimizer.build(variables)
    step(optimizer, variables, 2 * ONES)
    step(optimizer, variables, 3 * ONES)
    found = accumulated_gradient(optimizer, variables[1])
    np.testing.assert_allclose(to_numpy(found), 5 * ONES)
    every = gradient_sums(optimizer)
    assert len(every) == 2 and every[1] is found
    assert gradient_sums(o.SGD(0.1)) == []


def test_variable_can_be_untracked_and_tracked_again():
    optimizer = o.SGD(0.1)
    optimizer.build(two_variables())
    added = optimizer.add_variable((2,), name="added")
    untrack_variable(optimizer, added)
    assert not any(v is added for v in optimizer.variables)
    track_variable(optimizer, added)
    assert optimizer.variables[-1] is added


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_optimizer_trains_others_in_another_order(kind):
    optimizer, (a, b) = getattr(o, kind)(0.1), two_variables()
    optimizer.build([a, b])
    step(optimizer, [a, b])
    size, slots = len(optimizer.variables), {}
    if kind == "Adam":
        slots = {n: getattr(optimizer, n)[1:] for n in ("_momentums", "_velocities")}
    train_others(optimizer, [b], slots)
    assert (index_of(optimizer, a), index_of(optimizer, b)) == (None, 0)
    assert len(optimizer.variables) == size - len(slots)
    before = to_numpy(a), to_numpy(b)
    step(optimizer, [b])
    np.testing.assert_array_equal(to_numpy(a), before[0])
    assert (to_numpy(b) < before[1]).all()


@needs_several
def test_key_of_a_resized_variable_is_renamed():
    optimizer, (a, b) = o.AdamW(0.1, weight_decay=0.5), two_variables()
    optimizer.exclude_from_weight_decay(var_list=[a])
    both = o.MultiOptimizer(lambda v: optimizer)
    both.build([a, b])
    keys = [variable_key(part, a) for part in (both, optimizer)]
    give_value(a, keras.ops.ones((1,)))
    for part, key in zip((both, optimizer), keys, strict=True):
        rename_key(part, key, variable_key(part, a))
        assert index_of(part, a) == 0
    for slot in (optimizer._momentums[0], optimizer._velocities[0]):
        give_value(slot, keras.ops.zeros((1,)))
    zeros = [keras.ops.zeros((1,)), keras.ops.zeros((2,))]
    both.apply(zeros, [a, b])
    np.testing.assert_allclose(to_numpy(a), [1.0])  # still left out
    assert (to_numpy(b) < 1).all()


def test_decay_exclusions_are_copied():
    a, b, c = (keras.Variable(ONES, name=name) for name in "abc")
    source = o.SGD(0.1, weight_decay=0.5)
    source.exclude_from_weight_decay(var_list=[a], var_names=["c"])
    source.build([a, b, c])
    others = [keras.Variable(ONES, name=name) for name in "abc"]
    target = o.SGD(0.1, weight_decay=0.5)
    target.build(others)
    copy_decay_exclusions(source, target, list(zip([a, b, c], others, strict=True)))
    step(target, others, 0 * ONES)
    moved = [bool((to_numpy(v) < 1).all()) for v in others]
    assert moved == [False, True, False]


def test_an_assignment_leaves_a_mark():
    """On tensorflow any two marks differ: there it is not known."""
    rate = rate_source(o.SGD(0.1))
    first, again = change_mark(rate), change_mark(rate)
    assert (first == again) == (keras.backend.backend() != "tensorflow")
    rate.assign(0.2)
    assert change_mark(rate) != first and to_numpy(rate) == np.float32(0.2)
