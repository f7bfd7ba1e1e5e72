"""Replicas of MirroredStrategy score as one device; other strategies are refused."""

import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model
from tests.support.processes import run_script

X, Y = np.ones((4, 5, 8), "float32"), np.zeros((4, 5, 1), "float32")


@pytest.mark.daily()
@pytest.mark.parametrize("script", ["replicas_script", "elastic_replicas_script"])
def test_mirrored_strategy(script):
    assert "equal" in run_script(script)


def test_other_strategies_are_refused(monkeypatch):
    import tensorflow as tf

    # One worker of a cluster of one: the strategy itself, though nobody else is there.
    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        model = residual_model((16,))
        model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="CollectiveAllReduceStrategy"):
        model.fit(X, Y, callbacks=[ki.IdeaPruneCallback(4, 0, 1)], verbose=0)
