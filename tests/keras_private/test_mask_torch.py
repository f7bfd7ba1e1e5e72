"""Torch's count of changes tells when a mask must be looked at again."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="it is torch's"
)


def test_it_is_looked_at_once_and_after_each_change():
    from keras_idea.keras_private.mask_torch import look

    mask = keras.Variable(np.ones(4), trainable=False)
    known = look(mask, None)
    assert known[2] and look(mask, known) is known
    mask.assign(np.array([1.0, 0.0, 1.0, 1.0]))
    changed = look(mask, known)
    assert changed is not known and not changed[2]
    with keras.device("meta"):
        assert look(mask, changed) is None
