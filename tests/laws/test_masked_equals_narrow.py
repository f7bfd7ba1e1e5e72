"""A model that became narrow in `fit` goes on as one that only masks its units does.

Outputs, the loss of each step (those after the narrowing too), each variable and each
slot of the optimizer are compared, for every case of the table.
"""

import numpy as np

import keras_idea as ki
from tests import cases
from tests.cases import BATCH, FIT
from tests.support.helpers import LossRecorder
from tests.support.sliced import assert_near, assert_sliced


def trained(case, compact):
    """A model of the case after its steps, and the loss of each."""
    model = case.build()
    x, y = case.data(model)
    losses = LossRecorder()
    model.fit(
        x, y, epochs=case.epochs, callbacks=[case.callback(compact), losses], **FIT
    )
    return model, losses.losses


def outputs(case, *models):
    """What each model makes of a batch."""
    x, _ = case.data(models[0], BATCH)
    return [model.predict_on_batch(x) for model in models]


@cases.laws("narrow")
def test_masked_equals_narrow(case):
    masked, losses = trained(case, "off")
    narrow, narrow_losses = trained(case, case.compact)
    assert [group.width for group in case.pruned(masked)] == list(case.kept)
    assert [group.hidden_dim for group in case.pruned(narrow)] == list(case.kept)
    assert narrow.count_params() < masked.count_params()
    assert max(losses) < 100  # what diverges would hide all else
    np.testing.assert_allclose(narrow_losses, losses, rtol=case.within)
    # First: on jax Keras's `predict` deletes the averages of weights.
    assert_sliced(masked, narrow, 10 * case.within)
    assert_near(*outputs(case, narrow, masked), case.within)


@cases.laws("elastic")
def test_a_step_at_a_width_is_the_narrow_models(case):
    """Here the first units are the narrow model, and nothing is masked."""
    model, narrow = case.build(), ki.sliced(case.build(), 0.5)
    x, y = case.data(model)
    elastic = ki.ElasticCallback({"half": 0.5}, sample={"half": 1.0})
    losses = [LossRecorder(), LossRecorder()]
    model.fit(x, y, callbacks=[elastic, losses[0]], **FIT)
    narrow.fit(x, y, callbacks=[losses[1]], **FIT)
    np.testing.assert_allclose(losses[0].losses, losses[1].losses, rtol=case.within)
    found = elastic.sliced("half")
    assert_near(*outputs(case, found, narrow), case.within)
    pairs = zip(found.variables, narrow.variables, strict=True)
    assert_near(*zip(*pairs, strict=True), 10 * case.within)
