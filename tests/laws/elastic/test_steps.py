"""A step at a width is the step of the model that is so narrow."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support import elastic as reference
from tests.support.elastic import FIT, NEURONS, classifier, data
from tests.support.helpers import to_numpy
from tests.support.ways_to_train import ClippedByGlobalNorm

WIDTHS = {"small": 4, "medium": 8}


def arrays(variables):
    return [to_numpy(v).astype("float64") for v in variables]


def by_hand(optimizer, x, y, widths, teacher_weight=0.0):
    """The weights of `classifier` after steps at lists of widths, in float64."""
    model = classifier("sgd")
    weights = arrays(model.trainable_variables)
    for step, several in enumerate(widths):
        rows = slice(8 * step, 8 * step + 8)
        found = [
            reference.gradients(
                *weights, x[rows], y[rows], width, teacher_weight * (width < NEURONS)
            )
            for width in several
        ]
        means = [np.mean(parts, axis=0) for parts in zip(*found, strict=True)]
        weights = optimizer(weights, means)
    return weights


TURN = [[16], [4], [8], [16]]


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_two_widths_by_hand(kind):
    x, y = data()
    decay = {"weight_decay": 0.1} if kind == "AdamW" else {}
    model = classifier(getattr(keras.optimizers, kind)(0.05, **decay))
    model.fit(x, y, callbacks=[ki.ElasticCallback(WIDTHS)], **FIT)
    expected = by_hand(getattr(reference, kind)(0.05), x.astype("float64"), y, TURN)
    for got, want in zip(arrays(model.trainable_variables), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


def test_sandwich_by_hand():
    x, y = data()
    model = classifier(keras.optimizers.SGD(0.05))
    model.fit(x, y, callbacks=[ki.ElasticCallback(WIDTHS, sample="sandwich")], **FIT)
    expected = by_hand(reference.SGD(0.05), x.astype("float64"), y, [[16, 4, 8]] * 4)
    for got, want in zip(arrays(model.trainable_variables), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


def test_a_sandwich_with_a_teacher():
    """A step of SGD moves the weights by the mean of what each narrow pair moves."""
    x, y = (each[:8] for each in data())

    def moved(student, callbacks=()):
        """What a step adds to the weights; nothing to those of other neurons."""
        before = arrays(student.trainable_variables)
        teacher = classifier("sgd")
        for variable in teacher.trainable_variables:
            variable.assign(variable.value * 0.5)
        pair = ki.distiller(teacher, student, features=False, weight=0.7)
        pair.fit(x, y, callbacks=list(callbacks), **FIT)
        after = arrays(student.trainable_variables)
        up, down = (a - b for a, b in zip(after, before, strict=True))
        rest = NEURONS - len(down)
        return np.pad(up, ((0, 0), (0, rest))), np.pad(down, ((0, rest), (0, 0)))

    def student():
        return classifier(keras.optimizers.SGD(0.05))

    alone = [moved(student())]
    alone += [moved(ki.sliced(student(), width)) for width in WIDTHS.values()]
    elastic = ki.ElasticCallback(WIDTHS, sample="sandwich")
    together = moved(student(), callbacks=[elastic])
    for got, parts in zip(together, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(got, np.mean(parts, axis=0), atol=1e-6)
        assert np.abs(got).max() > 1e-2


def test_its_own_teacher_by_hand():
    x, y = data()
    model = classifier(keras.optimizers.SGD(0.05))
    elastic = ki.ElasticCallback(WIDTHS, teacher="self", teacher_weight=0.7)
    model.fit(x, y, callbacks=[elastic], **FIT)
    expected = by_hand(reference.SGD(0.05), x.astype("float64"), y, TURN, 0.7)
    for got, want in zip(arrays(model.trainable_variables), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-6)


_O = keras.optimizers
WAYS = {
    "adamw, clipped": lambda: classifier(_O.AdamW(0.05, global_clipnorm=0.1)),
    "each clipped": lambda: classifier(_O.Adam(0.05, clipnorm=0.01)),
    "values clipped": lambda: classifier(_O.SGD(0.5, clipvalue=1e-3)),
    "mixed_float16": lambda: classifier(_O.Adam(0.05), dtype="mixed_float16"),
    "averages": lambda: classifier(_O.SGD(0.05, momentum=0.9, use_ema=True)),
    "accumulation": lambda: classifier(_O.Adam(0.05, gradient_accumulation_steps=2)),
    "mixed_bfloat16": lambda: classifier(_O.Adam(0.05), dtype="mixed_bfloat16"),
    "loss scaling": lambda: classifier(_O.LossScaleOptimizer(_O.Adam(0.05), 4.0)),
    "regularizer": lambda: classifier(_O.Adam(0.05), regularizer="l2"),
}
if keras.backend.backend() != "torch":  # where Keras takes steps one at a time
    WAYS["steps in twos"] = lambda: classifier(_O.Adam(0.05), steps_per_execution=2)


@pytest.mark.parametrize("way", WAYS)
def test_a_step_is_the_sliced_models(way):
    """Two epochs at one width, after one at full width, equal those of the narrow."""
    x, y = data()
    model = WAYS[way]()
    model.fit(x, y, **FIT)
    # Keras on jax lets weights share their averages' arrays, and cannot fit them again.
    model.set_weights(model.get_weights())
    narrow = ki.sliced(model, 4)
    one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
    model.fit(x, y, epochs=2, callbacks=[one], **FIT)
    narrow.fit(x, y, epochs=2, **FIT)
    after = ki.sliced(model, 4)
    pairs = [(narrow.variables, after.variables)]
    pairs.append((narrow.optimizer.variables, after.optimizer.variables))
    for expected, received in pairs:
        for want, got in zip(arrays(expected), arrays(received), strict=True):
            np.testing.assert_allclose(got, want, atol=3e-6)


def test_a_train_step_of_the_users():
    x, y = data()
    y = keras.utils.to_categorical(y, 3)
    model = classifier(keras.optimizers.SGD(1.0), ClippedByGlobalNorm)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    narrow = ki.sliced(model, 4)
    one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
    history = model.fit(x, y, callbacks=[one], **FIT).history
    narrow.fit(x, y, **FIT)
    assert list(history) == ["loss"]  # whose loss Keras does not know
    after = ki.sliced(model, 4)
    for want, got in zip(
        arrays(narrow.variables), arrays(after.variables), strict=True
    ):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("regularizer", [None, "l2"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_other_neurons_do_what_the_optimizer_does_to_zeros(decay, regularizer):
    """Their gradients are zeros: they stay, or weight decay shrinks them."""
    x, y = data()
    optimizer = keras.optimizers.SGD(0.5, weight_decay=decay or None)
    model = classifier(optimizer, regularizer=regularizer)
    up, down = arrays(model.trainable_variables)
    one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
    model.fit(x, y, callbacks=[one], **FIT)
    after_up, after_down = arrays(model.trainable_variables)
    shrunk = (1 - 0.5 * decay) ** 4
    np.testing.assert_allclose(after_up[:, 4:], shrunk * up[:, 4:], rtol=1e-5 * decay)
    np.testing.assert_allclose(after_down[4:], shrunk * down[4:], rtol=1e-5 * decay)
    assert (after_up[:, :4] != up[:, :4]).any()


class Counted(keras.Model):
    """Counts the calls of its train step: where steps are compiled, its traces."""

    calls = 0

    def train_step(self, *arguments):
        Counted.calls += 1
        return super().train_step(*arguments)


def test_one_program_a_width():
    x, y = data()
    Counted.calls = 0
    model = classifier(keras.optimizers.SGD(0.05), Counted)
    elastic = ki.ElasticCallback(WIDTHS)
    for _ in range(2):
        model.fit(x, y, epochs=3, callbacks=[elastic], **FIT)
    eager = keras.backend.backend() == "torch"
    assert Counted.calls == (24 if eager else 3)


def test_at_full_width_the_train_function_is_the_models():
    x, y = data()
    plain, elastic = (classifier(keras.optimizers.Adam(0.05)) for _ in range(2))
    functions = []

    class Watch(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_begin(self, batch, logs=None):
            functions.append(self._model.train_function)

    almost = {"small": 1e-12, "full": 1.0 - 1e-12}
    callback = ki.ElasticCallback({"small": 4}, begin_step=0, sample=almost)
    plain.fit(x, y, **FIT)
    elastic.fit(x, y, callbacks=[Watch(), callback], **FIT)
    assert elastic.train_function is functions[0]
    assert functions[1] is not functions[0]  # what asks which width it is
    for want, got in zip(
        arrays(plain.variables), arrays(elastic.variables), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_after_an_exception_a_fit_is_plain():
    x, y = data()
    plain, model = (classifier(keras.optimizers.SGD(0.05)) for _ in range(2))

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model.fit(x, y, callbacks=[ki.ElasticCallback(WIDTHS), Fails()], **FIT)
    plain.set_weights(model.get_weights())
    plain.fit(x, y, **FIT)
    model.fit(x, y, **FIT)
    for want, got in zip(arrays(plain.variables), arrays(model.variables), strict=True):
        np.testing.assert_array_equal(got, want)
    assert "compute_loss" not in vars(model) and "call" not in vars(model.layers[1])


def test_weights_of_samples_and_classes():
    x, y = data()
    for given in (
        {"sample_weight": np.linspace(0.0, 3.0, 32)},
        {"class_weight": {0: 1.0, 1: 5.0, 2: 0.1}},
    ):
        model = classifier(keras.optimizers.SGD(0.05))
        narrow = ki.sliced(model, 4)
        one = ki.ElasticCallback({"small": 4}, sample={"small": 1.0})
        received = model.fit(x, y, callbacks=[one], **given, **FIT).history
        expected = narrow.fit(x, y, **given, **FIT).history
        assert received["small_loss"] == pytest.approx(expected["loss"], rel=1e-6)
        for want, got in zip(
            narrow.get_weights(), one.sliced("small").get_weights(), strict=True
        ):
            np.testing.assert_allclose(got, want, atol=1e-6)
