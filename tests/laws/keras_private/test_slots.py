"""Slots of all of Keras's optimizers are recognized; what is not is refused."""

import keras
import numpy as np
import pytest

from keras_idea.groups.cut import Cut
from keras_idea.keras_private.optimizer_slots import scalars_of, slots_of
from keras_idea.keras_private.optimizer_variables import parts, tracked_variables
from keras_idea.surgery.narrow_in_place import narrow_variable
from keras_idea.surgery.optimizer_state import (
    check_carriable,
    copy_optimizer,
    drop_variables,
    set_variables,
)
from tests.support.helpers import to_numpy

o = keras.optimizers
KEPT = [0, 2, 3]
# Name, shape and the neurons' axis; order matters where shapes are equal.
SHAPES = {
    "up": ((4, 6), 1),
    "gate": ((4, 6), 1),
    "down": ((6, 4), 0),
    "bias": ((6,), 0),
    "square": ((4, 4), None),
}
# Each with the lists of variables that it has.
OPTIMIZERS = {
    "sgd": (lambda: o.SGD(0.1), []),
    "momentum": (lambda: o.SGD(0.1, momentum=0.9), ["momentums"]),
    "nesterov": (lambda: o.SGD(0.1, momentum=0.9, nesterov=True), ["momentums"]),
    "adam": (lambda: o.Adam(0.1), ["_momentums", "_velocities"]),
    "amsgrad": (
        lambda: o.Adam(0.1, amsgrad=True),
        ["_momentums", "_velocities", "_velocity_hats"],
    ),
    "adamw": (lambda: o.AdamW(0.1), ["_momentums", "_velocities"]),
    "nadam": (lambda: o.Nadam(0.1), ["_momentums", "_velocities"]),
    "adamax": (lambda: o.Adamax(0.1), ["_m", "_u"]),
    "adagrad": (lambda: o.Adagrad(0.1), ["_accumulators"]),
    "adadelta": (
        lambda: o.Adadelta(0.1),
        ["_accumulated_delta_vars", "_accumulated_grads"],
    ),
    "lion": (lambda: o.Lion(0.1), ["_momentums"]),
    "ftrl": (lambda: o.Ftrl(0.1), ["_accumulators", "_linears"]),
    "rmsprop": (lambda: o.RMSprop(0.1), ["_velocities"]),
    "centered rmsprop": (
        lambda: o.RMSprop(0.1, momentum=0.5, centered=True),
        ["_average_gradients", "_momentums", "_velocities"],
    ),
    "schedule-free": (
        lambda: o.ScheduleFreeAdamW(0.1),
        ["_momentums", "_velocities"],
    ),
    "average": (
        lambda: o.SGD(0.1, use_ema=True),
        ["_model_variables_moving_average"],
    ),
    "accumulated": (
        lambda: o.SGD(0.1, gradient_accumulation_steps=2),
        ["_accumulated_gradients"],
    ),
    "loss scale": (
        lambda: o.LossScaleOptimizer(o.Adam(0.1)),
        ["_momentums", "_velocities"],
    ),
    "several": (
        lambda: o.MultiOptimizer(
            o.OptimizerMap(o.Adam(0.1), {"up": o.SGD(0.1, momentum=0.9)})
        ),
        ["_momentums", "_velocities", "momentums"],
    ),
    # These look at a whole matrix at once: the wide step is another than the narrow.
    "adafactor": (lambda: o.Adafactor(0.1), ["_c", "_r", "_v"]),
    "lamb": (lambda: o.Lamb(0.1), ["_momentums", "_velocities"]),
    "muon": (lambda: o.Muon(0.1), ["adam_velocities", "momentums"]),
}
WHOLE_MATRIX = {"adafactor", "lamb", "muon"}
for name, part in (
    ("schedule-free", "ScheduleFreeAdamW"),
    ("several", "MultiOptimizer"),
):
    if not hasattr(o, part):  # Keras 3.14 brought the one, 3.15 the other
        del OPTIMIZERS[name]


def numbers(seed, kept=None):
    """Numbers for each variable, of the kept neurons."""
    rng = np.random.default_rng(seed)
    for shape, axis in SHAPES.values():
        values = rng.normal(size=shape).astype("float32")
        cut = kept is not None and axis is not None
        yield values.take(kept, axis) if cut else values


def make_variables(kept=None):
    return [
        keras.Variable(values, name=name)
        for name, values in zip(SHAPES, numbers(0, kept), strict=True)
    ]


def step(optimizer, variables, seed, kept=None):
    grads = [keras.ops.convert_to_tensor(g) for g in numbers(seed, kept)]
    scaled = isinstance(optimizer, o.LossScaleOptimizer)
    if not scaled or keras.backend.backend() != "jax":
        optimizer.apply(grads, variables)
        return
    # Whether a step is skipped is decided in a traced function there.
    own = optimizer.variables
    values = [v.value for v in own], grads, [v.value for v in variables]
    new, new_own = optimizer.stateless_apply(*values)
    for variable, value in zip([*variables, *own], [*new, *new_own], strict=True):
        variable.assign(value)


def trained(make):
    """An optimizer after three steps, and the variables."""
    optimizer, variables = make(), make_variables()
    optimizer.build(variables)
    for seed in (1, 2, 3):
        step(optimizer, variables, seed)
    return optimizer, variables


def narrow(optimizer, variables):
    for variable, (_, axis) in zip(variables, SHAPES.values(), strict=True):
        if axis is not None:
            narrow_variable(optimizer, Cut(variable, axis), np.array(KEPT))


def values_of(variables):
    return [to_numpy(v) for v in variables]


def assert_alike(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_are_recognized(name):
    make, expected = OPTIMIZERS[name]
    optimizer, _ = trained(make)
    found = [
        n
        for p in parts(optimizer)
        for n, slot in slots_of(p)
        if any(v is not None for v in slot)
    ]
    assert sorted(found) == sorted(expected)
    for part in parts(optimizer):
        held = [v for _, slot in slots_of(part) for v in slot if v is not None]
        held += [v for _, v in scalars_of(part)]
        known = set(map(id, held))
        assert known >= {id(v) for v in tracked_variables(part)}
    check_carriable(optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_narrowed_and_copied_optimizers_step_alike(name):
    make = OPTIMIZERS[name][0]
    optimizer, variables = trained(make)
    fresh = make_variables(KEPT)
    pairs = []
    for old, new, (_, axis) in zip(variables, fresh, SHAPES.values(), strict=True):
        value = to_numpy(old)
        new.assign(value if axis is None else value.take(KEPT, axis))
        stays = [] if axis is None else [(np.array(KEPT), Cut(old, axis))]
        pairs.append((old, new, stays))
    copy = copy_optimizer(optimizer, pairs)
    wide, wide_variables = trained(make)
    narrow(optimizer, variables)
    for seed in (4, 5):
        step(optimizer, variables, seed, KEPT)
        step(copy, fresh, seed, KEPT)
        step(wide, wide_variables, seed)
    assert_alike(values_of(variables), values_of(fresh))
    assert_alike(values_of(optimizer.variables), values_of(copy.variables))
    if name not in WHOLE_MATRIX:
        expected = [
            v if axis is None else v.take(KEPT, axis)
            for v, (_, axis) in zip(
                values_of(wide_variables), SHAPES.values(), strict=True
            )
        ]
        assert_alike(values_of(variables), expected)


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "several"])
def test_variables_come_and_go(name):
    make = OPTIMIZERS[name][0]
    optimizer, variables = trained(make)
    plain, plain_variables = trained(make)
    size = len(optimizer.variables)
    extra = keras.Variable(np.zeros(3, "float32"), name="probe")
    extra.overwrite_with_gradient = True
    set_variables(optimizer, [extra, *variables])
    check_carriable(optimizer)
    drop_variables(optimizer, [extra])
    assert len(optimizer.variables) == size
    step(optimizer, variables, 4)
    step(plain, plain_variables, 4)
    assert_alike(values_of(variables), values_of(plain_variables))
    drop_variables(optimizer, variables[1:2])
    check_carriable(optimizer)


def weird(build):
    """SGD with more state, which `build(optimizer, variables)` makes."""

    class Weird(o.SGD):
        def build(self, variables):
            super().build(variables)
            self.odd = build(self, variables)

    return Weird(0.1)


WEIRD = {
    "of another shape": lambda s, vs: [s.add_variable((3,), name="x") for _ in vs],
    "in another order": lambda s, vs: s.add_optimizer_variables(vs, "x")[::-1],
    "of the same shape, unnamed": lambda s, vs: [
        s.add_variable(v.shape, name="x") for v in vs
    ],
    "of several kinds": lambda s, vs: [
        s.add_variable_from_reference(v, name=f"x{i}") for i, v in enumerate(vs)
    ],
    "too short": lambda s, vs: s.add_optimizer_variables(vs[1:], "x"),
    "a dict": lambda s, vs: {
        v.name: s.add_variable_from_reference(v, name="x") for v in vs
    },
    "a tuple": lambda s, vs: tuple(s.add_optimizer_variables(vs, "x")),
    "a list in a list": lambda s, vs: [s.add_optimizer_variables(vs, "x")],
    "one for a variable": lambda s, vs: s.add_variable_from_reference(vs[0], "x"),
    "an optimizer": lambda s, vs: o.SGD(0.1),
}


@pytest.mark.parametrize("kind", WEIRD)
def test_weird_lists_are_refused(kind):
    optimizer, variables = weird(WEIRD[kind]), make_variables()
    optimizer.build(variables)
    before = values_of(optimizer.variables)
    changes = [
        lambda: check_carriable(optimizer),
        lambda: narrow(optimizer, variables),
        lambda: set_variables(optimizer, variables),
        lambda: drop_variables(optimizer, variables[:1]),
        lambda: copy_optimizer(optimizer, [(v, v, []) for v in variables]),
    ]
    for change in changes:
        with pytest.raises(ValueError, match="Weird cannot be carried.*`odd`"):
            change()
    assert_alike(values_of(optimizer.variables), before)
    assert variables[0].shape == (4, 6)


def test_custom_lists_made_as_keras_makes_them_are_carried():
    optimizer, variables = (
        weird(lambda s, vs: s.add_optimizer_variables(vs, "x")),
        make_variables(),
    )
    optimizer.build(variables)
    for slot, values in zip(optimizer.odd, numbers(1), strict=True):
        slot.assign(values)
    narrow(optimizer, variables)
    assert_alike(values_of(optimizer.odd), list(numbers(1, KEPT)))


def test_copy_with_other_state_is_refused():
    class Forgetful(o.SGD):
        def get_config(self):
            return {**super().get_config(), "momentum": 0.0}

    optimizer, variables = Forgetful(0.1, momentum=0.9), make_variables()
    optimizer.build(variables)
    with pytest.raises(ValueError, match="Forgetful, made again from its config"):
        copy_optimizer(optimizer, [(v, v, []) for v in variables])
