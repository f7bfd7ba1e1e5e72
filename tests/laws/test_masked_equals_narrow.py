"""A model that became narrow in `fit` goes on as one that only masks its units does.

Outputs, the loss of each step (those after the narrowing too), each variable and each
slot of the optimizer are compared, for every case of the table.
"""

import keras
import numpy as np

import keras_idea as ki
from tests import cases
from tests.cases import FIT
from tests.support.helpers import LossRecorder
from tests.support.sliced import assert_near, assert_sliced


def trained(case, compact):
    """A model of the case after its steps, the losses, and what it makes of data."""
    model = case.build()
    x, y = case.data(model)
    losses = LossRecorder()
    model.fit(
        x, y, epochs=case.epochs, callbacks=[case.callback(compact), losses], **FIT
    )
    few = keras.tree.map_structure(lambda array: array[: cases.BATCH], x)
    return model, losses.losses, model.predict_on_batch(few)


@cases.laws("narrow")
def test_masked_equals_narrow(case):
    masked, losses, outputs = trained(case, "off")
    narrow, narrow_losses, narrow_outputs = trained(case, case.compact)
    assert [group.width for group in case.pruned(masked)] == list(case.kept)
    assert [group.hidden_dim for group in case.pruned(narrow)] == list(case.kept)
    assert narrow.count_params() < masked.count_params()
    assert max(losses) < 100  # what diverges would hide all else
    np.testing.assert_allclose(narrow_losses, losses, rtol=case.within)
    assert_near(narrow_outputs, outputs, case.within)
    assert_sliced(masked, narrow, 10 * case.within)


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
    few = keras.tree.map_structure(lambda array: array[: cases.BATCH], x)
    outputs = [each.predict_on_batch(few) for each in (found, narrow)]
    assert_near(*outputs, case.within)
    pairs = zip(found.variables, narrow.variables, strict=True)
    assert_near(*zip(*pairs, strict=True), 10 * case.within)
