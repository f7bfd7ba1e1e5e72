"""An elastic run from its begin to its end: sorting, logs, kills."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.elastic import FIT, classifier, data
from tests.support.helpers import to_numpy

WIDTHS = {"small": 4, "medium": 0.5}


def arrays(variables):
    return [to_numpy(v) for v in variables]


def test_neurons_are_sorted_once_and_the_model_computes_the_same():
    """As many full steps as a plain fit takes: the same outputs, another order."""
    x, y = data()
    plain, model = (classifier(keras.optimizers.Adam(0.05)) for _ in range(2))
    almost = {"small": 1e-12, "full": 1.0 - 1e-12}
    elastic = ki.ElasticCallback({"small": 4}, begin_step=2, sample=almost)
    plain.fit(x, y, epochs=2, **FIT)
    model.fit(x, y, epochs=2, callbacks=[elastic], **FIT)
    np.testing.assert_allclose(
        model.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5
    )
    (ffn,) = ki.find_ffns(model)
    order = ffn.original_indices
    assert sorted(order) == list(range(16)) and list(order) != list(range(16))
    slots = arrays(model.optimizer.variables), arrays(plain.optimizer.variables)
    for got, want in zip(*slots, strict=True):
        for axis, size in enumerate(want.shape):
            want = want.take(order, axis) if size == 16 else want
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.daily("torch", "jax")  # which makes a function for each width
def test_each_width_is_validated():
    x, y = data()
    held = data(16, seed=2)
    model = classifier(keras.optimizers.SGD(0.05), metrics=["accuracy"])
    elastic = ki.ElasticCallback(WIDTHS)
    history = model.fit(x, y, validation_data=held, callbacks=[elastic], **FIT).history
    models = [model, elastic.sliced("small"), elastic.sliced("medium")]
    for name, narrow in zip(["", "small_", "medium_"], models, strict=True):
        loss, accuracy = narrow.evaluate(*held, verbose=0)
        assert history[f"val_{name}loss"] == pytest.approx([loss], rel=1e-5)
        assert history[f"val_{name}accuracy"] == pytest.approx([accuracy])


def test_early_stopping_forgets_weights_of_before_the_sorting():
    """Sorted in the second of three epochs; the first epoch was the best."""
    stop = keras.callbacks.EarlyStopping("worse", mode="min", restore_best_weights=True)
    worse = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs.update(worse=epoch)
    )
    stop.patience = 9
    model, seen = classifier(keras.optimizers.Adam(0.05)), []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(arrays(model.weights))
    )
    elastic = ki.ElasticCallback({"small": 4}, begin_step=6)
    callbacks = [elastic, worse, keep, stop]
    model.fit(*data(), epochs=3, callbacks=callbacks, **FIT)
    for got, want in zip(arrays(model.weights), seen[1], strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "begin_step, sample",
    [(4, "turn"), (7, {"small": 0.3, "medium": 0.3, "full": 0.4})],
)
def test_a_run_that_goes_on_has_the_same_bits(tmp_path, begin_step, sample):
    """Killed after the first epoch, of 4 steps; sorted before, at, or after that."""
    x, y = data()

    def part(folder, epochs):
        model = classifier(keras.optimizers.Adam(0.05))
        checkpoint = ki.Checkpoint(tmp_path / folder)
        initial_epoch = checkpoint.restore(model)
        elastic = ki.ElasticCallback(WIDTHS, begin_step, sample, seed=3)
        given = {"epochs": epochs, "initial_epoch": initial_epoch}
        model.fit(x, y, callbacks=[elastic, checkpoint], **given, **FIT)
        return arrays([*model.variables, *model.optimizer.variables])

    whole = part("whole", 3)
    part("parts", 1)
    for got, want in zip(part("parts", 3), whole, strict=True):
        np.testing.assert_array_equal(got, want)


def test_nothing_to_slice():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    with pytest.raises(ki.KerasIdeaError, match="no FFN whose neurons can be sliced"):
        ki.sliced(model, 0.5)
