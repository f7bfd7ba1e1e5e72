"""What Keras's optimizers are known to do inside."""

import keras
import numpy as np

from keras_idea.keras_private.optimizer_variables import (
    change_mark,
    innermost,
    parts,
    rate_source,
)
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


def test_learning_rate_is_known_as_it_was_given():
    schedule = o.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert rate_source(o.SGD(schedule)) is schedule
    assert isinstance(rate_source(o.SGD(0.1)), keras.Variable)


def test_an_assignment_leaves_a_mark():
    """On tensorflow any two marks differ: there it is not known."""
    rate = rate_source(o.SGD(0.1))
    first, again = change_mark(rate), change_mark(rate)
    assert (first == again) == (keras.backend.backend() != "tensorflow")
    rate.assign(0.2)
    assert change_mark(rate) != first and to_numpy(rate) == np.float32(0.2)
