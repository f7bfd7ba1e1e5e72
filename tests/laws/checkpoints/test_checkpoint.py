"""What `Checkpoint` saves and restores; the law `resumes` compares whole runs."""

import time

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy


def test_every_second_epoch_and_the_last(data, tmp_path):
    model = residual_model((8,))
    model.compile("sgd", "mse")
    checkpoint = ki.Checkpoint(tmp_path, every=2)
    model.fit(*data, epochs=5, batch_size=32, verbose=0, callbacks=[checkpoint])
    steps = [path.stem.split("-")[3] for path in sorted(tmp_path.iterdir())]
    assert list(map(int, steps)) == [4, 8, 10]


def one_layer():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def stop_at(batch):
    def stop(step, logs):
        stopping.model.stop_training |= step == batch

    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    return stopping


# Keras may call it in a thread, which ends behind that of the next batch.
LATE = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda batch, logs: time.sleep(0.1 * (batch == 2))
)
LATE.async_safe = True
STOPPED = {  # callbacks before and after `Checkpoint`, epochs that are saved of 4
    "in mid-epoch": ([stop_at(1)], [], 0),
    "at the last batch": ([stop_at(3)], [], 1),
    "at the epoch's end": ([LATE, keras.callbacks.EarlyStopping("loss", 9, 1)], [], 2),
    "not a number, and goes on": ([], [], 2),
    "weights": ([], [], 2),
}


@pytest.mark.parametrize("case", STOPPED)
def test_whole_epochs_of_finite_numbers_are_saved(case, tmp_path):
    """And no others: what is saved is the state from which the run resumes."""
    before, behind, saved = STOPPED[case]
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    y, rate = x[:, :2] + 1, 0.01
    if case == "weights":  # the loss of this epoch is finite, that of the next is not
        y *= 1e3
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([10], [1e-9, 3e38])
    model = one_layer()
    model.compile(keras.optimizers.SGD(rate), "mse")
    checkpoint = ki.Checkpoint(tmp_path, keep=1)
    fit = {"verbose": 0, "shuffle": False, "callbacks": [*before, checkpoint, *behind]}
    if case.startswith("not a number"):
        model.fit(x, y, batch_size=8, epochs=2, **fit)
        y[20] = np.nan
        model.fit(x, y, batch_size=8, epochs=4, initial_epoch=2, **fit)
    else:
        model.fit(x, y, batch_size=8, epochs=4, **fit)
    again = one_layer()
    again.compile(keras.optimizers.SGD(rate), "mse")
    assert ki.Checkpoint(tmp_path).restore(again) == saved
    assert all(np.isfinite(to_numpy(v)).all() for v in again.variables)
    assert int(keras.ops.convert_to_numpy(again.optimizer.iterations)) == 4 * saved


DATA = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")


def compiled(optimizer="adam"):
    model = one_layer()
    model.compile(optimizer, "mse")
    return model


def test_another_initial_epoch_is_warned_of(tmp_path):
    fit = {"epochs": 2, "verbose": 0}
    compiled().fit(*DATA, callbacks=[ki.Checkpoint(tmp_path)], **fit)
    model, checkpoint = compiled(), ki.Checkpoint(tmp_path)
    assert checkpoint.restore(model) == 2
    with pytest.warns(UserWarning, match="initial_epoch=2"):
        model.fit(*DATA, callbacks=[checkpoint], **fit)


OTHERS = {  # a model that cannot be restored, or arguments of `Checkpoint`
    "gradient_accumulation_steps": (
        lambda: compiled(keras.optimizers.Adam(gradient_accumulation_steps=2)),
        {},
    ),
    "optimizer": (lambda: compiled("nadam"), {}),
    "shape": (lambda: wider(), {}),
    "identity": (compiled, {"identity": {"seed": 1}}),
    "stateful": (compiled, {"stateful": {"clock": None}}),
}


def wider():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("name", OTHERS)
def test_another_run_is_rejected_with_its_values_untouched(name, tmp_path):
    make, arguments = OTHERS[name]
    compiled().fit(*DATA, verbose=0, callbacks=[ki.Checkpoint(tmp_path)])
    model = make()
    before = [to_numpy(v) for v in model.variables]
    with pytest.raises(ki.KerasIdeaError, match=name):
        ki.Checkpoint(tmp_path, **arguments).restore(model)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable), value)
