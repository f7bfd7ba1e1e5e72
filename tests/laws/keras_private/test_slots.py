"""Slots of all of Keras's optimizers are known and cut; what is not is refused."""

import keras
import numpy as np
import pytest

from keras_idea.groups.cut import Cut
from keras_idea.keras_private.optimizer_slots import scalars_of, slots_of
from keras_idea.keras_private.optimizer_variables import parts, tracked_variables
from keras_idea.surgery.narrow_in_place import narrow_variable
from keras_idea.surgery.optimizer_state import check_carriable, copy_optimizer
from tests.support.helpers import to_numpy

o = keras.optimizers
KEPT = [0, 2, 3]
# Name, shape and the neurons' axis; order matters where shapes are equal.
SHAPES = {"up": ((4, 6), 1), "down": ((6, 4), 0), "bias": ((6,), 0)}
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
    for part in parts(optimizer):
        held = [v for _, slot in slots_of(part) for v in slot if v is not None]
        known = set(map(id, held + [v for _, v in scalars_of(part)]))
        assert known >= {id(v) for v in tracked_variables(part)}
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


WEIRD = {
    "a tuple": lambda s, vs: tuple(s.add_optimizer_variables(vs, "x")),
    "one for a variable": lambda s, vs: s.add_variable_from_reference(vs[0], "x"),
}


@pytest.mark.parametrize("kind", WEIRD)
def test_weird_lists_are_refused(kind):
    class Weird(o.SGD):
        def build(self, variables):
            super().build(variables)
            self.odd = WEIRD[kind](self, variables)

    optimizer, variables = trained(lambda: Weird(0.1))
    for change in (
        lambda: check_carriable(optimizer),
        lambda: narrow(optimizer, variables),
        lambda: copy_optimizer(optimizer, [(v, v, []) for v in variables]),
    ):
        with pytest.raises(ValueError, match="Weird cannot be carried.*`odd`"):
            change()
    assert variables[0].shape == (4, 6)
