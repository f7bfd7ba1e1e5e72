"""What an elastic run refuses, in words, before the first step."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.elastic import FIT, classifier, data

SMALL = {"small": 4}


def sequential(*between, **arguments):
    dense = keras.layers.Dense
    layers = [keras.Input((4,)), dense(16, "relu", **arguments), *between, dense(3)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model


def rematerialized():
    with keras.RematScope("full"):
        return sequential()


def not_logits():
    model = classifier("sgd")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy())
    return model


def a_pair():
    models = (classifier("sgd") for _ in range(2))
    return ki.distiller(*models, features=False)


def linear():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def binary():
    """One logit: its softmax is 1 whatever it is."""
    model = keras.Sequential([keras.Input((4,)), *map(keras.layers.Dense, (16, 1))])
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def two_ffns(*names):
    """A model of two FFNs, "a" and "b", whose layers of these names are frozen."""
    dense = keras.layers.Dense
    x = inputs = keras.Input((4,))
    for name in "ab":
        x = x + dense(4)(dense(16, "relu", name=name)(x))
    model = keras.Model(inputs, dense(3)(x))
    for name in names:
        model.get_layer(name).trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model


def with_pruned_neurons():
    model = classifier("sgd")
    up, down = model.get_weights()
    up[:, :2], down[:2] = 0.0, 0.0
    model.set_weights([up, down])
    return model


class ByWidth(keras.layers.Layer):
    """Divides by the number of the neurons."""

    def call(self, x):
        return x / x.shape[-1]


NORM = keras.layers.BatchNormalization
MODELS = {
    "logits": (not_logits, {"teacher": "self"}, "from_logits=True"),
    "pair": (a_pair, {"teacher": "self"}, "is a Distiller"),
    "remat": (rematerialized, {"teacher": "self"}, "rematerialized"),
    "remat, sandwich": (rematerialized, {"sample": "sandwich"}, "rematerialized"),
    "no FFN": (linear, {}, "has no FFN whose neurons can be pruned"),
    "statistics": (lambda: sequential(NORM()), {}, "statistics would be of several"),
    "constraint": (
        lambda: sequential(kernel_constraint="max_norm"),
        {},
        "has a constraint",
    ),
    "too wide": (classifier, {"widths": {"small": 17}}, "which has 16"),
    "all": (classifier, {"widths": {"small": 16}}, "'full' and 'small' are both"),
    "twice": (
        classifier,
        {"widths": {"small": 4, "tiny": 0.25}},
        "'small' and 'tiny' are both",
    ),
    "one logit": (binary, {"teacher": "self"}, "compares the logits of classes"),
    "frozen": (lambda: two_ffns("b"), {}, "b: frozen .* name the other FFNs"),
    "pruned": (with_pruned_neurons, {}, r"up: some neurons are pruned .*ki\.compact"),
    "heads": (
        classifier,
        {"widths": {"small": {"neurons": 0.5, "kv_groups": 0.5}}},
        r"heads and channels keep their number.*ki\.shrink",
    ),
    "by number": (lambda: sequential(ByWidth()), {}, "no FFN|their number"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    make, arguments, message = MODELS[name]
    model = make("sgd") if make is classifier else make()
    callback = ki.ElasticCallback(**{"widths": SMALL, **arguments})
    function = model.make_train_function() or model.train_function
    with pytest.raises(ki.KerasIdeaError, match=message):
        model.fit(*data(), callbacks=[callback], **FIT)
    assert model.train_function is function  # as it was


@pytest.mark.parametrize("order", [1, -1])
def test_two_that_change_the_width(order):
    prune = ki.IdeaPruneCallback(4, begin_step=1, prune_steps=1)
    both = [ki.ElasticCallback(SMALL), prune][::order]
    with pytest.raises(ki.KerasIdeaError, match="not both"):
        classifier("sgd").fit(*data(), callbacks=both, **FIT)
    both[both.index(prune)] = ki.ElasticCallback(SMALL)
    with pytest.raises(ki.KerasIdeaError, match="Received: two"):
        classifier("sgd").fit(*data(), callbacks=both, **FIT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"widths": {}}, "dict of names to widths"),
        ({"widths": 0.5}, "dict of names to widths"),
        ({"widths": {"full": 4}}, "'full' is that of the whole model"),
        ({"widths": {"a b": 4}}, "must be words"),
        ({"widths": {"small": 2, "val_small": 4}}, "'val_' begins what the logs say"),
        ({"widths": {"small": 4, "tiny": 4}}, "repeats a width"),
        ({"widths": {"small": 1.5}}, r"float in \(0, 1\)"),
        ({"begin_step": -1}, "begin_step"),
        ({"sample": "turns"}, "Did you mean 'turn'"),
        ({"sample": {"small": 0.5}}, "sum is 0.5"),
        ({"sample": {"full": 1.0}}, "never draws small"),
        ({"sample": {"tiny": 1.0}}, "not in `widths`"),
        ({"sample": {"small": 2}}, r"probabilities in \[0, 1\]"),
        ({"teacher": "full"}, "teacher"),
        ({"teacher": keras.Model}, "teacher"),
        ({"teacher_weight": 2.0}, "teacher_weight"),
        ({"seed": -1}, "seed"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ki.KerasIdeaError, match=message):
        ki.ElasticCallback(**{"widths": SMALL, **arguments})


def test_a_width_of_numpy_s():
    widths = {"small": np.int64(4), "medium": np.float32(0.5)}
    assert ki.ElasticCallback(widths).widths == {"small": 4, "medium": 0.5}


def test_another_teacher_and_no_model_yet():
    with pytest.raises(ki.KerasIdeaError, match="ki.distiller"):
        ki.ElasticCallback(SMALL, teacher=classifier("sgd"))
    with pytest.raises(ki.KerasIdeaError, match="no model yet"):
        ki.ElasticCallback(SMALL).sliced("small")
    with pytest.raises(ki.KerasIdeaError, match="must be one of 'small'"):
        ki.ElasticCallback(SMALL).sliced("large")


def test_nothing_is_known_of_the_neurons():
    """Steps that no callback has seen leave nothing to sort by."""
    x, y = data()
    model = classifier("sgd")
    model.fit(x, y, **FIT)
    callback = ki.ElasticCallback(SMALL, begin_step=4)
    with pytest.raises(ki.KerasIdeaError, match="Nothing is known of the neurons"):
        model.fit(x, y, callbacks=[callback], **FIT)
    assert np.isfinite(model.evaluate(x, y, verbose=0))


def test_an_ffn_that_keeps_all_neurons_may_be_frozen():
    model = two_ffns("b")
    before = model.get_layer("b").get_weights()
    callback = ki.ElasticCallback({"small": {"a": 4}})
    model.fit(*data(), callbacks=[callback], **FIT)
    assert [f.hidden_dim for f in ki.find_ffns(callback.sliced("small"))] == [4, 16]
    for got, want in zip(model.get_layer("b").get_weights(), before, strict=True):
        np.testing.assert_array_equal(got, want)


def test_callbacks_that_put_an_earlier_order_back(tmp_path):
    """Of 4 steps an epoch: sorted at step 6, in epoch 1."""
    stop = keras.callbacks.EarlyStopping
    given = {"monitor": "loss", "restore_best_weights": True}

    def fit(other, begin_step=6):
        callbacks = [ki.ElasticCallback(SMALL, begin_step=begin_step), other]
        model = classifier("sgd")
        model.fit(*data(), epochs=3, callbacks=callbacks, **FIT)
        return int(model.optimizer.iterations)

    with pytest.raises(ki.KerasIdeaError, match="Use keras_idea.Checkpoint"):
        fit(keras.callbacks.BackupAndRestore(tmp_path))
    with pytest.raises(ki.KerasIdeaError, match="start_from_epoch=1, or monitor='val_"):
        fit(stop(**given))
    with pytest.raises(ki.KerasIdeaError, match="Give it monitor='val_small_loss'"):
        fit(stop(**given), begin_step=60)
    assert fit(stop(**given), begin_step=0) == 12
    assert fit(stop(**given, start_from_epoch=1, patience=3)) == 12
    assert fit(stop("small_loss", mode="min", restore_best_weights=True)) == 12


def test_begin_steps_at_which_nothing_begins():
    x, y = data()
    model = classifier("sgd")
    with pytest.warns(UserWarning, match="will have taken 4 steps when it ends"):
        model.fit(x, y, callbacks=[ki.ElasticCallback(SMALL, begin_step=4)], **FIT)
    model.fit(x, y, **FIT)
    with pytest.warns(UserWarning, match="has taken 8 steps.*never were"):
        model.fit(x, y, callbacks=[ki.ElasticCallback(SMALL, begin_step=5)], **FIT)


def test_a_step_that_knows_no_width():
    """Of a loop of the user's own: `train_on_batch` is right, another is refused."""
    x, y = data()
    expected, model = (classifier("sgd") for _ in range(2))
    expected.fit(x, y, callbacks=[ki.ElasticCallback(SMALL)], **FIT)
    callback = ki.ElasticCallback(SMALL)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    for batch in range(4):
        callback.on_train_batch_begin(batch)
        rows = slice(8 * batch, 8 * batch + 8)
        model.train_on_batch(x[rows], y[rows])
    for got, want in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(got, want)
    callback.on_train_batch_begin(4)
    with pytest.raises(ki.KerasIdeaError, match="a step of your own knows no width"):
        callback.on_train_batch_begin(5)
    callback.on_train_end()
