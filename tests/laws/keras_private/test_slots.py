"""Slots of Keras's optimizers are known by their names and cut; others are refused."""

import keras
import numpy as np
import pytest

from keras_idea._groups.cut import Cut
from keras_idea._surgery.narrow_in_place import narrow_variable
from keras_idea._surgery.optimizer_state import (
    check_carriable,
    copy_optimizer,
    slots_of,
)
from tests.support.helpers import to_numpy

o = keras.optimizers
KEPT = [0, 2, 3]
# Name, shape and the neurons' axis. Some names begin with others.
SHAPES = {"up": ((4, 6), 1), "up_down": ((6, 4), 0), "up_up": ((6,), 0)}
SHAPES["square"] = (4, 4), None
OPTIMIZERS = {
    "momentum": lambda: o.SGD(0.1, momentum=0.9),
    "adamw": lambda: o.AdamW(0.1, amsgrad=True),
    "adamax": lambda: o.Adamax(0.1),
    "adagrad": lambda: o.Adagrad(0.1),
    "adadelta": lambda: o.Adadelta(0.1),
    "schedule-free": lambda: o.ScheduleFreeAdamW(0.1),
    "rmsprop": lambda: o.RMSprop(0.1, momentum=0.5, centered=True),
    "average": lambda: o.SGD(0.1, use_ema=True),
    "accumulated": lambda: o.SGD(0.1, gradient_accumulation_steps=2),
    "several": lambda: o.MultiOptimizer(
        o.OptimizerMap(o.Adam(0.1), {"up": o.SGD(0.1, momentum=0.9)})
    ),
    # These look at a whole matrix at once: the wide step is another than the narrow.
    "lamb": lambda: o.Lamb(0.1),
    "muon": lambda: o.Muon(0.1),
}
# Keras 3.14 brought the one, 3.15 the other.
for _name, _class in (
    ("schedule-free", "ScheduleFreeAdamW"),
    ("several", "MultiOptimizer"),
):
    if not hasattr(o, _class):
        del OPTIMIZERS[_name]


def numbers(seed, kept=None):
    """Numbers for each variable, of the kept neurons."""
    rng = np.random.default_rng(seed)
    for shape, axis in SHAPES.values():
        values = rng.normal(size=shape).astype("float32")
        cut = kept is not None and axis is not None
        yield values.take(kept, axis) if cut else values


def step(optimizer, variables, seed, kept=None):
    grads = [keras.ops.convert_to_tensor(g) for g in numbers(seed, kept)]
    optimizer.apply(grads, variables)


def trained(make):
    """An optimizer after three steps, and the variables."""
    pairs = zip(SHAPES, numbers(0), strict=True)
    optimizer, variables = make(), [keras.Variable(v, name=n) for n, v in pairs]
    optimizer.build(variables)
    for seed in (1, 2, 3):
        step(optimizer, variables, seed)
    return optimizer, variables


def narrow(optimizer, variables):
    for variable, (_, axis) in zip(variables, SHAPES.values(), strict=True):
        if axis is not None:
            narrow_variable(optimizer, Cut(variable, axis), np.array(KEPT))


ROWS = [
    pytest.param(
        name,
        marks=pytest.mark.daily("torch", "jax", "tensorflow")
        if name in ("momentum", "adamw")
        else (),
    )
    for name in OPTIMIZERS
]


@pytest.mark.parametrize("name", ROWS)
def test_every_slot_is_known_and_a_narrow_step_is_the_wide_ones(name):
    optimizer, variables = trained(OPTIMIZERS[name])
    slots = [slot for variable in variables for slot in slots_of(optimizer, variable)]
    matrices = [v for v in optimizer.variables if len(v.shape)]
    assert sorted(map(id, slots)) == sorted(map(id, matrices))
    check_carriable(optimizer)
    wide, wide_variables = trained(OPTIMIZERS[name])
    narrow(optimizer, variables)
    for seed in (4, 5):
        step(optimizer, variables, seed, KEPT)
        step(wide, wide_variables, seed)
    pairs = zip(variables, wide_variables, SHAPES.values(), strict=True)
    for found, other, (_, axis) in pairs:
        expected = to_numpy(other)
        expected = expected if axis is None else expected.take(KEPT, axis)
        if name not in ("lamb", "muon"):
            np.testing.assert_allclose(to_numpy(found), expected, 2e-5, 1e-6)
        assert tuple(found.shape) == expected.shape


def test_variables_of_one_path_have_slots_of_their_own():
    """Keras gives two layers of one name variables of one path."""
    variables = [keras.Variable(np.ones(3), name="kernel") for _ in range(2)]
    optimizer = o.Adam(0.1)
    optimizer.build(variables)
    optimizer.apply([keras.ops.ones(3), 2 * keras.ops.ones(3)], variables)
    found = [slots_of(optimizer, variable) for variable in variables]
    np.testing.assert_allclose([to_numpy(m)[0] for m, _ in found], [0.1, 0.2])


def test_a_copy_has_the_state_and_what_must_not_decay():
    optimizer = o.AdamW(0.1, weight_decay=0.5)
    variables = [keras.Variable([1.0], name=name) for name in "ab"]
    optimizer.exclude_from_weight_decay([variables[0]])
    optimizer.build(variables)
    copies = [keras.Variable(v.value, name=v.name) for v in variables]
    copy = copy_optimizer(optimizer, list(zip(variables, copies, strict=True)))
    for each, trained_by_it in ((optimizer, variables), (copy, copies)):
        each.apply([keras.ops.ones(1), keras.ops.ones(1)], trained_by_it)
    for one, other in zip(variables, copies, strict=True):
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


def test_adafactor_is_refused():
    """It keeps the second moment of a matrix as two vectors."""
    optimizer, variables = trained(lambda: o.Adafactor(0.1))
    with pytest.raises(ValueError, match="Adafactor"):
        check_carriable(optimizer)
    assert variables[0].shape == (4, 6)
