"""A run that goes on from a checkpoint equals one that was never stopped."""

import random
import shutil

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import hub_models
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import residual_model, to_numpy

BATCH, STEPS, EPOCHS = 8, 4, 7


def batches(data, start):
    """The same batch at the same step, whenever the generator was made."""
    step = start
    while True:
        rows = np.random.default_rng(step).integers(0, len(data[0]), BATCH)
        yield tuple(part[rows] for part in data)
        step += 1


def with_dropout(ffn=ki.PrunableGatedFFN):
    model = residual_model((16, 12), head=False, ffn=ffn)
    x = keras.layers.Dropout(0.3)(model.output)
    return keras.Model(model.input, keras.layers.Dense(1)(x))


KINDS += [(of_dense, "sensitivity"), (of_dense, "learned_mask")]


class Recorder(keras.callbacks.Callback):
    """Something that must survive too."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])

    def get_state(self):
        return {"losses": np.array(self.losses)}

    def set_state(self, state):
        self.losses = state["losses"].tolist()


def part_of_run(folder, data, make, method, epochs=EPOCHS, compact="end", **changes):
    """What one process does: make, restore, fit to the given epoch."""
    keras.utils.set_random_seed(3)
    model = make()
    schedule = ki.CosineDecay(0.02, 1e-4, STEPS * EPOCHS, warmup_steps=2)
    model.compile(keras.optimizers.AdamW(schedule), "mse")
    recorder = Recorder()
    checkpoint = ki.Checkpoint(
        folder, stateful={"recorder": recorder}, **{"keep": 99, **changes}
    )
    epoch = checkpoint.restore(model)
    # Not on multiples of an epoch: before, in and after pruning.
    prune = ki.IdeaPruneCallback(4, 6, 11, method=method, compact=compact)
    # All EPOCHS, so that the schedule fits; stopped after `epochs`.
    hook = "on_epoch_end" if epochs == int(epochs) else "on_train_batch_end"

    def stop_training(place, logs):
        steps = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
        model.stop_training = steps >= epochs * STEPS

    stop = keras.callbacks.LambdaCallback(**{hook: stop_training})
    model.fit(
        batches(data, epoch * STEPS),
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        initial_epoch=epoch,
        shuffle=False,
        verbose=0,
        callbacks=[prune, recorder, checkpoint, stop],
    )
    return model, recorder, checkpoint


def assert_same(one, other):
    """The same variables, losses and logs."""
    (model, recorder, checkpoint), (expected, losses, logs) = one, other
    assert [v.shape for v in model.variables] == [v.shape for v in expected.variables]
    variables = [*model.variables, *model.optimizer.variables]
    others = [*expected.variables, *expected.optimizer.variables]
    for a, b in zip(variables, others, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
    assert recorder.losses == losses.losses
    assert checkpoint.history.keys() == logs.history.keys()
    for name, values in logs.history.items():
        assert checkpoint.history[name] == values


@pytest.mark.filterwarnings("error::UserWarning")
def test_between_two_milestones(data, tmp_path):
    """A model that is half narrow and still scored comes back as it was."""
    kind = (data, with_dropout, "sensitivity")
    straight = part_of_run(tmp_path / "straight", *kind, compact="progressive")
    saved = sorted((tmp_path / "straight").iterdir())[2]  # step 12 of pruning to 17
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy / saved.name)
    model = with_dropout()
    model.compile(keras.optimizers.AdamW(ki.CosineDecay(0.02, 1e-4, 28)), "mse")
    checkpoint = ki.Checkpoint(copy, stateful={"recorder": Recorder()})
    assert checkpoint.restore(model) == 3
    ffns = ki.find_ffns(model)
    schedules = [ki.CubicWidth(full, 4, 6, 11) for full in (16, 12)]
    assert [ffn.width for ffn in ffns] == [schedule(12) for schedule in schedules]
    for ffn in ffns:
        assert 4 < ffn.hidden_dim < ffn.full_dim
        assert len(set(ffn.original_indices)) == ffn.hidden_dim
        assert ffn.original_indices.max() >= ffn.hidden_dim
    resumed = part_of_run(copy, *kind, compact="progressive")
    assert_same(resumed, straight)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(resumed[0])] == [4, 4]


@pytest.mark.parametrize("make, method", KINDS)
@pytest.mark.filterwarnings("error::UserWarning")
def test_a_masked_run_from_every_checkpoint_on(make, method, data, tmp_path):
    """After pruning too: scores are measured, and what is pruned stays zero."""
    kind = (data, make, method)
    straight = part_of_run(tmp_path / "straight", *kind, compact="off")
    for saved in sorted((tmp_path / "straight").iterdir())[2:6]:
        copy = tmp_path / f"from-{saved.name}"
        shutil.copytree(saved, copy / saved.name)
        assert_same(part_of_run(copy, *kind, compact="off"), straight)


def test_seeds_of_the_process(data, tmp_path):
    """Random numbers drawn between epochs go on where they were."""

    def drawn():
        return (
            random.random(),
            np.random.rand(),
            float(keras.ops.convert_to_numpy(keras.random.uniform(()))),
        )

    model = residual_model((8,))
    model.compile("sgd", "mse")
    random.seed(5)
    checkpoint = ki.Checkpoint(tmp_path)
    model.fit(*data, verbose=0, callbacks=[checkpoint])
    expected = drawn()
    drawn()
    assert checkpoint.restore(model) == 1
    assert drawn() == expected


def test_every_second_epoch_and_the_last(data, tmp_path):
    model = residual_model((8,))
    model.compile("sgd", "mse")
    checkpoint = ki.Checkpoint(tmp_path, every=2)
    model.fit(*data, epochs=5, batch_size=32, verbose=0, callbacks=[checkpoint])
    steps = [int(path.name.split("-")[3]) for path in sorted(tmp_path.iterdir())]
    assert steps == [4, 8, 10]


def one_layer():
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def stop_at(batch):
    def stop(step, logs):
        stopping.model.stop_training |= step == batch

    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    return stopping


STOPPED = {  # callbacks before and after `Checkpoint`, epochs that are saved of 4
    "in mid-epoch": ([stop_at(1)], [], 0),
    "in mid-epoch, behind": ([], [stop_at(1)], 0),
    "at the last batch": ([stop_at(3)], [], 1),
    "at the epoch's end": ([keras.callbacks.EarlyStopping("loss", 9, 1)], [], 2),
    "data of unknown length": ([stop_at(1)], [], 0),
    "not a number": ([keras.callbacks.TerminateOnNaN()], [], 2),
    "not a number, and goes on": ([], [], 2),
    "weights": ([], [], 2),
    "two steps at once": ([stop_at(1)], [], 0),
    "two steps at once, the last": ([stop_at(3)], [], 1),
}


@pytest.mark.parametrize("case", STOPPED)
def test_whole_epochs_of_finite_numbers_are_saved(case, tmp_path):
    """And no others: what is saved is the state from which the run resumes."""
    if case.startswith("two") and keras.backend.backend() == "torch":
        pytest.skip("Keras on torch takes one step at a time")
    before, behind, saved = STOPPED[case]
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    y, rate = x[:, :2] + 1, 0.01
    if case == "weights":  # the loss of this epoch is finite, that of the next is not
        y *= 1e3
        rate = keras.optimizers.schedules.PiecewiseConstantDecay([10], [1e-9, 3e38])
    model = one_layer()
    execution = {"steps_per_execution": 2 if case.startswith("two") else 1}
    model.compile(keras.optimizers.SGD(rate), "mse", **execution)
    checkpoint = ki.Checkpoint(tmp_path, keep=1)
    fit = {"verbose": 0, "shuffle": False, "callbacks": [*before, checkpoint, *behind]}
    if case == "data of unknown length":
        rows = ((x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8))
        model.fit(rows, **fit)
    elif case.startswith("not a number"):
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


def test_fit_continues_without_initial_epoch(tmp_path):
    """The epochs that were restored are not trained again; later fits are free."""

    data = np.ones((8, 4), "float32"), np.ones((8, 2), "float32")

    def restored():
        model = one_layer()
        model.compile("adam", "mse")
        checkpoint = ki.Checkpoint(tmp_path)
        return model, checkpoint, checkpoint.restore(model)

    model, checkpoint, _ = restored()
    model.fit(*data, epochs=2, verbose=0, callbacks=[checkpoint])
    for epochs, seen in ((4, [2, 3]), (3, [])):
        model, checkpoint, _ = restored()
        with pytest.warns(UserWarning, match="initial_epoch=0"):
            logs = model.fit(*data, epochs=epochs, verbose=0, callbacks=[checkpoint])
        assert logs.epoch == seen
        assert model.fit(*data, verbose=0).epoch == [0]
    model, checkpoint, epoch = restored()
    assert epoch == 4

    def fail(epoch, logs):
        raise KeyboardInterrupt

    killed = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    with pytest.warns(UserWarning, match="initial_epoch=0"):
        with pytest.raises(KeyboardInterrupt):
            model.fit(*data, epochs=6, verbose=0, callbacks=[killed, checkpoint])
    assert model.fit(*data, verbose=0).epoch == [0]
