"""Every step of every schedule against its formula in NumPy."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._schedules import Accumulated
from tests.support.helpers import to_numpy

PEAK, END = 0.01, 5e-5


def eta(t, total, warmup, peak=PEAK, end=END):
    """The paper's learning rate, as it is printed (PAPER.md)."""
    t = min(t, total)
    if warmup and t <= warmup:
        return t / warmup * peak
    c1, c2 = (peak - end) / 2, (peak + end) / 2
    return c1 * np.cos((t - warmup) / total * np.pi) + c2


def of_ints(schedule, steps):
    return [float(schedule(step)) for step in range(steps)]


def of_tensors(schedule, steps):
    """As an optimizer asks: with its counter."""
    counter = keras.Variable(0, dtype="int", trainable=False)
    rates = []
    for _ in range(steps):
        rates.append(float(schedule(counter)))
        counter.assign_add(1)
    return rates


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("start, warmup", [(0, 0), (0, 1), (25, 10)])
def test_cosine_at_every_step(warmup, start):
    schedule = ki.CosineDecay(PEAK, END, 60, warmup_steps=warmup, start_step=start)
    expected = [eta(step + start, 60, warmup) for step in range(80)]
    np.testing.assert_allclose(of_ints(schedule, 80), expected, rtol=1e-12)
    np.testing.assert_allclose(of_tensors(schedule, 80), expected, rtol=1e-5, atol=1e-9)


def test_cosine_of_a_long_run():
    """Steps beyond float32's whole numbers are still told apart from each other."""
    total = 2**26
    schedule = ki.CosineDecay(1.0, 0.0, total, start_step=2**25 + 1)
    for step in (0, 2**24):
        exact = eta(2**25 + step + 1, total, 0, 1.0, 0.0)
        tensor = keras.ops.convert_to_tensor(step, "int32")
        np.testing.assert_allclose(float(schedule(tensor)), exact, atol=1e-6)


def test_warmup_stable_decay_at_every_step():
    schedule = ki.WarmupStableDecay(1.0, 0.1, 20, warmup_steps=4, decay_steps=5)
    expected = [0.0, 0.25, 0.5, 0.75, *[1.0] * 12, 0.82, 0.64, 0.46, 0.28, 0.1, 0.1]
    np.testing.assert_allclose(of_ints(schedule, 22), expected, rtol=1e-12)
    np.testing.assert_allclose(of_tensors(schedule, 22), expected, rtol=1e-6)
    assert ki.WarmupStableDecay(1.0, 0.1, 100).decay_steps == 20


def test_staged_schedule_restarts_each_stage():
    stages = [
        (ki.CosineDecay(PEAK, END, 10, warmup_steps=2), 10),
        (ki.CosineDecay(PEAK / 2, END, 6), 6),
        (ki.WarmupStableDecay(0.1, 0.0, 5, decay_steps=5), 5),
    ]
    schedule = ki.StagedSchedule(stages)
    expected = [eta(t, 10, 2) for t in range(10)]
    expected += [eta(t, 6, 0, peak=PEAK / 2) for t in range(6)]
    expected += [0.1, 0.08, 0.06, 0.04, 0.02, 0.0, 0.0]
    for rates in (of_ints, of_tensors):
        np.testing.assert_allclose(
            rates(schedule, len(expected)), expected, rtol=1e-5, atol=1e-8
        )


SCHEDULES = [
    ki.CosineDecay(PEAK, END, 8, warmup_steps=2, start_step=1),
    ki.WarmupStableDecay(PEAK, END, 8, warmup_steps=2, decay_steps=3, start_step=1),
    ki.StagedSchedule(
        [(ki.CosineDecay(PEAK, END, 3), 3), (ki.CosineDecay(1, 0, 5), 5)]
    ),
    Accumulated(ki.CosineDecay(PEAK, END, 3), 2),
]


def test_accumulated_is_the_rate_of_the_step():
    cosine = ki.CosineDecay(PEAK, END, 40, 4)
    schedule = Accumulated(cosine, 3)
    expected = np.repeat([eta(t, 40, 4) for t in range(45)], 3)
    np.testing.assert_allclose(of_ints(schedule, 135), expected, rtol=1e-5)
    np.testing.assert_allclose(of_tensors(schedule, 135), expected, rtol=1e-5)


@pytest.mark.daily("torch", "jax", "tensorflow")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_serialization_and_use_in_a_compiled_step(schedule):
    config = keras.saving.serialize_keras_object(schedule)
    restored = keras.saving.deserialize_keras_object(config)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(restored), loss=lambda y, p: p)
    weight = float(to_numpy(model.layers[0].kernel)[0, 0])
    for step in range(8):
        # The gradient is one, so a step is the rate.
        model.train_on_batch(np.ones((1, 1)), np.zeros((1, 1)))
        new = float(to_numpy(model.layers[0].kernel)[0, 0])
        rate = float(schedule(step))
        np.testing.assert_allclose(weight - new, rate, rtol=1e-4, atol=3e-7)
        weight = new
