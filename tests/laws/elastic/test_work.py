"""What the monitor says that the steps at each width cost, counted by hand."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.elastic import FIT, classifier, data
from tests.support.events import Events

#: Multiplications of a sample at 16, 4 and 8 neurons: 4 weights into each, 3 out.
FULL, SMALL, MEDIUM = 16 * 7, 4 * 7, 8 * 7


def counted(folder, before=False, epochs=2, **given):
    """Training FLOPs of each of four steps an epoch, over those of a product."""
    x, y = data()
    model = classifier(keras.optimizers.Adam(0.05))
    elastic = ki.ElasticCallback({"small": 4, "medium": 0.5}, **given)
    monitor = ki.Monitor(folder, update_every=1)
    callbacks = [monitor, elastic] if before else [elastic, monitor]
    model.fit(x, y, epochs=epochs, callbacks=callbacks, **FIT)
    found = Events(folder).scalars("flops/train")
    assert list(found) == [*range(1, 4 * epochs + 1)]
    # Forward and twice back, 8 samples.
    return np.diff([0.0, *found.values()]) / (6 * 8)


@pytest.mark.parametrize("before", [False, True])
def test_in_turn_after_steps_at_full_width(tmp_path, before):
    """The sixth step begins the third round of the count of steps: full, small, ..."""
    found = counted(tmp_path, before, begin_step=4)
    np.testing.assert_allclose(found, [FULL] * 4 + [SMALL, MEDIUM, FULL, SMALL])


def test_a_teacher_costs_a_forward_pass_at_full_width(tmp_path):
    found = counted(tmp_path, epochs=1, teacher="self")
    third = FULL / 3
    expected = [FULL, SMALL + third, MEDIUM + third, FULL]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("teacher", [None, "self"])
def test_a_sandwich_costs_what_its_widths_cost(tmp_path, teacher):
    """Its teacher is one of them."""
    found = counted(tmp_path, epochs=1, sample="sandwich", teacher=teacher)
    np.testing.assert_allclose(found, [FULL + SMALL + MEDIUM] * 4)
