"""Two replicas of a MirroredStrategy do what one device does: scores, masks, widths."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
)

import contextlib  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402

import keras_idea as ki  # noqa: E402
from tests.support.dense_ffns import dense_gated  # noqa: E402
from tests.support.helpers import (  # noqa: E402
    LossRecorder,
    residual_model,
    set_random_weights,
    to_numpy,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(64, 5, 8)).astype("float32")
Y = rng.normal(size=(64, 5, 1)).astype("float32")


class Scores(keras.callbacks.Callback):
    """Scores and masks of all FFNs after each step."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        self.seen += [
            (to_numpy(ffn.scores), to_numpy(ffn.mask), ffn.hidden_dim)
            for ffn in ki.find_ffns(self.model)
            if ffn.state.active_track is not None
        ]


def run(scope, compact, ffn, method="sensitivity", **optimizer):
    with scope:
        model = residual_model((16, 12), ffn=ffn)
        set_random_weights(model)
        model.compile(keras.optimizers.AdamW(0.01, **optimizer), "mse")
    recorder, scores = LossRecorder(), Scores()
    prune = ki.IdeaPruneCallback(4, 3, 8, compact=compact, method=method)
    fit = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
    model.fit(X, Y, callbacks=[scores, prune, recorder], **fit)
    return model, recorder.losses, scores.seen


WAYS = (
    ("end", dense_gated),
    ("progressive", ki.PrunableGatedFFN),
    ("end", dense_gated, "learned_mask"),
)
for how in WAYS:
    one, losses, seen = run(contextlib.nullcontext(), *how)
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    both, losses_of_both, seen_by_both = run(strategy.scope(), *how)
    assert [ffn.hidden_dim for ffn in ki.find_ffns(both)] == [4, 4]
    np.testing.assert_allclose(losses_of_both, losses, rtol=5e-6)
    assert len(seen) == len(seen_by_both) > 20
    for expected, found in zip(seen, seen_by_both, strict=True):
        # Sums of halves: off by float32's precision of the largest, not of each score.
        largest = expected[0].max()
        np.testing.assert_allclose(
            found[0], expected[0], rtol=1e-6, atol=5e-6 * largest
        )
        np.testing.assert_array_equal(found[1], expected[1])
        assert found[2] == expected[2]
    for variable in [*both.trainable_variables, *both.optimizer.variables]:
        copies = strategy.experimental_local_results(variable.value)
        if len(variable.shape):
            assert len(copies) == 2, variable.path
            np.testing.assert_array_equal(copies[0], copies[1])
    for mine, theirs in zip(both.variables, one.variables, strict=True):
        np.testing.assert_allclose(to_numpy(mine), to_numpy(theirs), 1e-4, 1e-6)
print("equal")
