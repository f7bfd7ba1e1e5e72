"""Users' models of stock layers, pruned by the one line, against NumPy in float64.

The gradients are the model's own; what Algorithm 1 makes of them, and of the weights
before each step, is computed again: scores, masks, the step of SGD, zeros.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.algorithm_reference import kept
from tests.support.helpers import to_numpy
from tests.support.recording_sgd import RecordingSGD, StepRecord
from tests.support.users_models import USERS_MODELS, inputs_of, outputs_like

RATE, DECAY, BEGIN, STEPS, TOTAL, BATCH = 0.01, 0.4, 1, 6, 9, 4
of_users = pytest.mark.parametrize("make", USERS_MODELS, ids=lambda make: make.__name__)


def trained(make, callbacks, compact):
    """A model of it, trained; the same numbers every time."""
    keras.utils.set_random_seed(0)
    model = make()
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(to_numpy(variable) + 0.1 * rng.normal(size=variable.shape))
    x = inputs_of(model, rng, TOTAL * BATCH)
    y = outputs_like(model, x, rng)
    losses = [keras.losses.MeanSquaredError()] * len(y)
    # KerasHub's would measure an accuracy; of several outputs Keras 3.13 refuses [].
    none = [] if len(y) == 1 else None
    model.compile(RecordingSGD(RATE), losses, weighted_metrics=none)
    prune = ki.IdeaPruneCallback(0.5, BEGIN, STEPS, compact=compact)
    y = y if len(y) > 1 else y[0]
    fit = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
    history = model.fit(x, y, callbacks=[prune, *callbacks], **fit).history
    return model, x, history


@of_users
def test_equals_algorithm_1_in_float64(make):
    record = StepRecord()
    model, _, _ = trained(make, [record], compact="off")
    places = {id(v): i for i, v in enumerate(model.trainable_variables)}
    ffns = ki.find_ffns(model)
    assert [ffn.hidden_dim for ffn in ffns] == USERS_MODELS[make]
    # (place of a kernel or bias, axis of its neurons), of each FFN.
    cuts = [[(places[id(c.variable)], c.axis) for c in ffn.cuts()] for ffn in ffns]
    # Their gradients are sparse on tensorflow, and not recorded as they are applied.
    looked_up = {i for i, v in enumerate(model.trainable_variables) if "emb" in v.path}
    scores = [0.0] * len(ffns)
    active = [np.ones(ffn.hidden_dim, bool) for ffn in ffns]
    for t in range(1, TOTAL + 1):
        weights, gradients = (
            [np.asarray(v, "float64") for v in seen[t - 1]]
            for seen in (record.weights, record.gradients)
        )
        expected = [w - RATE * g for w, g in zip(weights, gradients, strict=True)]
        for i, ffn in enumerate(ffns):
            kernels = [(p, axis) for p, axis in cuts[i] if weights[p].ndim > 1]
            newest = np.stack(
                [
                    np.abs(weights[p] * gradients[p]).mean(1 - axis)
                    for p, axis in kernels
                ]
            )
            scores[i] = (1 - DECAY) * newest + DECAY * scores[i]
            importance = np.where(active[i], scores[i].max(0), -np.inf)
            full = ffn.hidden_dim
            width = kept(t, full, round(full / 2), BEGIN, STEPS)
            active[i] = np.isin(np.arange(full), np.argsort(-importance)[:width])
            for place, axis in cuts[i]:
                shape = [1] * weights[place].ndim
                shape[axis] = -1
                expected[place] = expected[place] * active[i].reshape(shape)
            found, mask = record.seen[t - 1][i]
            np.testing.assert_allclose(found, scores[i], rtol=2e-5, atol=1e-9)
            np.testing.assert_array_equal(mask > 0, active[i])
        for i, (found, value) in enumerate(
            zip(record.weights[t], expected, strict=True)
        ):
            if i in looked_up:
                continue
            np.testing.assert_allclose(found, value, rtol=2.4e-7, atol=2e-7)
    assert all(width.sum() == round(len(width) / 2) for width in active)


@of_users
def test_narrow_equals_masked(make):
    """Dropout draws other numbers for other shapes, so it is taken out here."""
    ways = {}
    for compact in ("off", "end", "progressive"):
        model, x, history = trained(without_dropout(make), [], compact)
        wide = "off" if compact == "off" else "end"
        dims = [ffn.hidden_dim for ffn in ki.find_ffns(model)]
        full = USERS_MODELS[make]
        assert dims == [d if wide == "off" else round(d / 2) for d in full]
        outputs = keras.tree.flatten(model(keras.tree.map_structure(first, x)))
        ways[compact] = [*map(to_numpy, outputs), np.array(history["loss"])]
        assert not [v for v in model.variables if "neuron" in v.path]
        assert not type(model).__module__.startswith("keras_idea")
    for compact in ("end", "progressive"):
        for one, other in zip(ways["off"], ways[compact], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def first(array):
    return array[:BATCH]


def without_dropout(make):
    def made():
        model = make()
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0
        return model

    return made
