"""A resumed run with Keras's own callbacks equals one that was never stopped."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy

# What the callbacks watch, epoch by epoch: patience is counted, and begun again.
SCORES = [5.0, 3.0, 4.0, 4.0, 2.0, 3.0, 3.0, 3.0, 3.0]
EPOCHS, BEST = len(SCORES), 5


class Killed(BaseException):
    """The process is gone."""


class Kill(keras.callbacks.Callback):
    """Behind the checkpoint: the process is gone after that epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 == self.epoch:
            raise Killed


class Rates(keras.callbacks.Callback):
    """Notes the learning rate of each epoch, and gives the score to the others."""

    def __init__(self, rates):
        super().__init__()
        self.rates = rates

    def on_epoch_begin(self, epoch, logs=None):
        self.rates[epoch] = float(to_numpy(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = SCORES[epoch]


def made(**optimizer):
    keras.utils.set_random_seed(3)
    model = residual_model((8,))
    model.compile(keras.optimizers.SGD(0.02, momentum=0.9, **optimizer), "mse")
    return model


def part_of_run(folder, data, callbacks, kill_at=None, make=made):
    """What one process does; the rates of its epochs, and the model."""
    rates, model = {}, make()
    checkpoint = ki.Checkpoint(folder)
    epoch = checkpoint.restore(model)
    callbacks = [Rates(rates), *callbacks(), checkpoint, Kill(kill_at)]
    fit = {"epochs": EPOCHS, "initial_epoch": epoch, "batch_size": 16, "verbose": 0}
    try:
        model.fit(*data, shuffle=False, callbacks=callbacks, **fit)
    except Killed:
        pass
    return rates, model, checkpoint


def watching(kind, **arguments):
    return kind(monitor="score", mode="min", **arguments)


def stopping(patience=3, **arguments):
    kind = keras.callbacks.EarlyStopping
    return watching(kind, patience=patience, **arguments)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_resumed_run_equals_the_straight_one(data, tmp_path):
    """Patience and the best score are counted across the kill, beside pruning."""

    def callbacks():
        kind = keras.callbacks.ReduceLROnPlateau
        plateau = watching(kind, factor=0.5, patience=2, cooldown=1)
        return [ki.IdeaPruneCallback(4, 4, 9), plateau, stopping()]

    rates, model, checkpoint = part_of_run(tmp_path / "straight", data, callbacks)
    assert len(rates) == BEST + 3 < EPOCHS and len(set(rates.values())) > 1
    found = {}
    for kill in (2, 6, None):
        part, resumed, last = part_of_run(tmp_path / "parts", data, callbacks, kill)
        found |= part
    assert found == rates and last.history == checkpoint.history
    for ours, theirs in zip(resumed.variables, model.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(ours), to_numpy(theirs))


def test_what_was_best_of_another_metric_is_not_taken(data, tmp_path):
    """Nor in another order: it would be compared with numbers of another kind."""

    def stop(monitor):
        return keras.callbacks.EarlyStopping(monitor, mode="min", patience=99)

    part_of_run(tmp_path, data, lambda: [stop("score"), stop("loss")], kill_at=2)
    for monitors in (["loss", "score"], ["loss", "loss"]):
        stops = list(map(stop, monitors))
        with pytest.warns(UserWarning, match="'EarlyStopping of score'"):
            part_of_run(tmp_path, data, lambda: stops, kill_at=3)  # noqa: B023
        assert stops[0].best != min(SCORES[:3])
        sorted(tmp_path.iterdir())[-1].unlink()


@pytest.mark.parametrize(
    "behind, name",
    [
        (lambda: keras.callbacks.EarlyStopping(), "EarlyStopping"),
        (lambda: keras.callbacks.BackupAndRestore("backup"), "BackupAndRestore"),
    ],
)
def test_rejected_before_a_step(data, tmp_path, behind, name):
    model = made()
    with pytest.raises(ValueError, match=name):
        model.fit(*data, verbose=0, callbacks=[ki.Checkpoint(tmp_path), behind()])
    assert model.optimizer.iterations == 0
