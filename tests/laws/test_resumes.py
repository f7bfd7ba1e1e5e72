"""A run that was interrupted three times ends with the bits of one that never was.

Each interruption is an exception in the middle of an epoch, before, in and after the
pruning; the next process restores the last checkpoint and repeats what was lost.
"""

import contextlib

import keras
import numpy as np

import keras_idea as ki
from tests import cases
from tests.cases import BATCH
from tests.support.helpers import to_numpy

EPOCHS = 6
BATCHES = 2
SCHEDULE = {"begin_step": 3, "prune_steps": 5}
# The batch in which a process ends: before, in and after pruning.
INTERRUPTED = (2, 6, 10)


class Interrupted(keras.callbacks.Callback):
    """Ends a process in the middle of an epoch."""

    def __init__(self, at):
        super().__init__()
        self.at = at

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.epoch * BATCHES + batch == self.at:
            raise InterruptedError


class Drawn(keras.callbacks.Callback):
    """Something beside the model that must survive: random numbers, and its state."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append([np.random.rand(), logs["loss"]])

    def get_state(self):
        return {"seen": np.array(self.seen)}

    def set_state(self, state):
        self.seen = state["seen"].tolist()


def process(case, folder, *callbacks):
    """What one process does: makes the model, restores, and trains on."""
    model, drawn = case.build(), Drawn()
    x, y = case.data(model, BATCHES * BATCH)
    accumulated = model.optimizer.gradient_accumulation_steps or 1
    checkpoint = ki.Checkpoint(folder, stateful={"drawn": drawn})
    epoch = checkpoint.restore(model)
    schedule = {n: max(1, v // accumulated) for n, v in SCHEDULE.items()}
    prune = case.callback(**schedule)
    callbacks = [prune, drawn, checkpoint, *callbacks]
    arguments = {"batch_size": BATCH, "shuffle": True, "verbose": 0}
    arguments |= {"initial_epoch": epoch, "epochs": EPOCHS}
    model.fit(x, y, callbacks=callbacks, **arguments)
    return model, drawn.seen, checkpoint.history


@cases.laws("resumes", few=("heads and neurons", "learned mask"))
def test_resumes_bit_for_bit(case, tmp_path):
    model, seen, history = process(case, tmp_path / "whole")
    for number, at in enumerate(INTERRUPTED):
        try:
            process(case, tmp_path / "parts", Interrupted(at))
        except InterruptedError:
            saved = len(list((tmp_path / "parts").iterdir()))
            assert (saved > 0) == (at >= BATCHES), number
        else:
            raise AssertionError(f"batch {at} was never trained")
    resumed, seen_again, history_again = process(case, tmp_path / "parts")
    assert seen_again == seen and history_again == history
    assert [g.hidden_dim for g in case.pruned(resumed)] == list(case.kept)
    pairs = [
        *zip(model.variables, resumed.variables, strict=True),
        *zip(model.optimizer.variables, resumed.optimizer.variables, strict=True),
    ]
    for one, other in pairs:
        np.testing.assert_array_equal(to_numpy(one), to_numpy(other), one.path)


def batches(begin, x, y):
    for batch in range(begin, EPOCHS * BATCHES):
        rows = slice(batch % BATCHES * BATCH, (batch % BATCHES + 1) * BATCH)
        yield x[rows], y[rows]


def test_resumes_with_a_generator(tmp_path):
    """A loader that is made once per `fit` draws from the generators only then."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCHES * BATCH, 4)).astype("float32")

    def part(folder, *callbacks):
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8, "relu"), keras.layers.Dropout(0.5)]
        layers = [keras.Input((4,)), *layers, keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        checkpoint = ki.Checkpoint(folder)
        epoch = checkpoint.restore(model)
        data = batches(epoch * BATCHES, x, x[:, :2])
        fit = {"steps_per_epoch": BATCHES, "epochs": EPOCHS, "initial_epoch": epoch}
        model.fit(data, callbacks=[checkpoint, *callbacks], verbose=0, **fit)
        return checkpoint.history

    history = part(tmp_path / "whole")
    for at in INTERRUPTED[1:]:
        with contextlib.suppress(InterruptedError):
            part(tmp_path / "parts", Interrupted(at))
    assert part(tmp_path / "parts") == history
