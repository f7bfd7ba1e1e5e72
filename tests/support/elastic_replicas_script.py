"""Two replicas of a MirroredStrategy train widths as one device does."""

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
from tests.support.helpers import (  # noqa: E402
    residual_model,
    set_random_weights,
    to_numpy,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(32, 5, 8)).astype("float32")
Y = rng.normal(size=(32, 5, 1)).astype("float32")


def run(scope, sample):
    with scope:
        model = residual_model((16,))
        set_random_weights(model)
        model.compile(keras.optimizers.AdamW(0.01), "mse")
    elastic = ki.ElasticCallback({"small": 4, "medium": 0.5}, 2, sample)
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    logs = model.fit(X, Y, validation_data=(X, Y), callbacks=[elastic], **fit).history
    return model, logs, elastic.sliced("small")


for how in ("turn", {"small": 0.3, "medium": 0.3, "full": 0.4}):
    one, logs, narrow = run(contextlib.nullcontext(), how)
    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
    both, logs_of_both, narrow_of_both = run(strategy.scope(), how)
    assert logs.keys() == logs_of_both.keys() and "val_small_loss" in logs
    for name, values in logs.items():
        np.testing.assert_allclose(logs_of_both[name], values, rtol=1e-5)
    for models in ((one, both), (narrow, narrow_of_both)):
        for mine, theirs in zip(*(m.variables for m in models), strict=True):
            np.testing.assert_allclose(to_numpy(mine), to_numpy(theirs), 1e-4, 1e-6)
    for variable in both.trainable_variables:
        copies = strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(copies[0], copies[1])
print("equal")
