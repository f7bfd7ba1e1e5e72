"""`compact="progressive"` on a stock model of KerasHub's."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy


def adamw():
    return keras.optimizers.AdamW(0.01, weight_decay=0.01, epsilon=1e-4)


def test_a_stock_kerashub_model():
    """The layers around the kernels, and a compact copy at any time."""
    pytest.importorskip("keras_hub")
    from tests.support.hub_models import FULL, batch, tiny_lm

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    logits = []
    for compact in ("progressive", "end"):
        lm = tiny_lm("gemma2")
        lm.compile(adamw(), loss, weighted_metrics=None)
        x, y = batch(lm, np.random.default_rng(0), size=16)
        prune = ki.IdeaPruneCallback(10, 1, 4, compact=compact)
        widths = []

        class Widths(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None, widths=widths):
                widths.append({ffn.hidden_dim for ffn in ki.find_ffns(self.model)})
                if len(widths) == 4 and ki.find_ffns(self.model)[0].state.active_track:
                    narrow = ki.compact(self.model)
                    active = ki.CubicWidth(FULL, 10, 1, 4)(3)
                    assert type(narrow) is type(self.model)
                    assert narrow.backbone.intermediate_dim == 2 * active

        callbacks, fit = [prune, Widths()], {"batch_size": 2, "verbose": 0}
        keras.Model.fit(lm, x, y, shuffle=False, callbacks=callbacks, **fit)
        logits.append(to_numpy(lm(x)))
        assert len(set(map(tuple, widths))) == (4 if compact == "progressive" else 2)
        assert all(len(width) == 1 for width in widths) and widths[-1] == {10}
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-4)
