"""What `fit` says of its outcome: narrowed, not finished, nothing to do."""

import itertools
import warnings

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy

FIT = {"batch_size": 8, "shuffle": False}  # 8 steps per epoch


def batches(data, count):
    """A generator of unknown length."""
    x, y = data
    rows = itertools.cycle(range(0, 64, 8))
    return ((x[i : i + 8], y[i : i + 8]) for i in itertools.islice(rows, count))


class StopsAfter(keras.callbacks.Callback):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == self.batch


def compiled(model=None):
    model = model or residual_model()
    model.compile("sgd", "mse")
    return model


def warned(model, x, y=None, **arguments):
    """The warnings of a fit, without Keras's own."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, verbose=0, shuffle=False, **arguments)
    return [w for w in caught if w.filename == __file__]


def plain_size(model):
    """Parameters, counted by Keras in a compacted copy."""
    return ki.compact(model).count_params()


@pytest.mark.parametrize("compact", ["end", "progressive"])
@pytest.mark.parametrize("epochs", [1, 2], ids=["in an epoch", "between two"])
def test_a_narrowing_is_told_in_one_line(compact, epochs, data, capsys):
    model = compiled()
    wide = plain_size(model)
    steps = 4 if epochs == 1 else 6  # done at step 8, where the first epoch ends
    prune = ki.IdeaPruneCallback(4, 2, steps, compact=compact)
    model.fit(*data, epochs=epochs, callbacks=[prune], verbose=2, **FIT)
    told = [li for li in capsys.readouterr().out.splitlines() if "Narrowed" in li]
    assert told == [
        f"Narrowed at step {2 + steps}: FFN width [16, 12] to 4, "
        f"{wide:,} to {plain_size(model):,} parameters."
    ]


@pytest.mark.parametrize(
    "count, begin", [(5, 6), (9, 6)], ids=["before pruning", "while pruning"]
)
def test_training_that_ends_before_pruning_does_is_told(count, begin, data):
    model = compiled()
    prune = ki.IdeaPruneCallback(4, begin, 8)
    (told,) = warned(model, batches(data, count), callbacks=[prune])
    expected = (
        f"ended at step {count}, and pruning would have ended at step {begin + 8}"
    )
    assert expected in str(told.message)
    widths = [to_numpy(ffn.mask).sum() for ffn in ki.find_ffns(model)]
    schedules = [ki.CubicWidth(full, 4, begin, 8) for full in (16, 12)]
    assert widths == [schedule(count) for schedule in schedules]
    prune = ki.IdeaPruneCallback(4, begin, 8)
    assert not warned(model, *data, epochs=2, batch_size=8, callbacks=[prune])
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [4, 4]


def test_a_run_that_an_error_ends_says_no_more(data):
    x, y = data
    prune = ki.IdeaPruneCallback(4, 2, 10)
    with warnings.catch_warnings(record=True) as caught:
        with pytest.raises(RuntimeError, match="No finite gradient"):
            x, y = np.concatenate([x, x]), np.full((128, 5, 1), np.nan)
            fit = {"batch_size": 8, "steps_per_epoch": 5, "epochs": 3, "verbose": 0}
            compiled().fit(x, y, callbacks=[prune], **fit)
    assert not [w for w in caught if "Training ended" in str(w.message)]
