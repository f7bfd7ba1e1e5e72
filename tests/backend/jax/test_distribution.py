"""Four devices do what one does, through compaction, and keep their layouts.

`keras.distribution` is for jax; a process of its own, for the number of devices.
"""

import os
import subprocess
import sys

import pytest

RUN = """
import keras, numpy as np
import keras_idea as ki
from tests.support.dense_ffns import dense_gated
from tests.support.helpers import LossRecorder, set_random_weights

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 5, 8)).astype("float32")
y = rng.normal(size=(64, 5, 1)).astype("float32")


def run():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5, 8))
    hidden = inputs + ki.PrunableGatedFFN(16, name="ffn_0")(inputs)
    hidden = hidden + dense_gated(12, "ffn_1")(hidden)
    head = keras.layers.Dense(1, use_bias=False, name="head")
    model = keras.Model(inputs, head(hidden))
    set_random_weights(model)
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    recorder = LossRecorder()
    prune = ki.IdeaPruneCallback(4, 3, 8, round_to=2)
    fit = {"batch_size": 8, "epochs": 3, "shuffle": False, "verbose": 0}
    model.fit(x, y, callbacks=[prune, recorder], **fit)
    ffns = ki.find_ffns(model)
    assert [ffn.hidden_dim for ffn in ffns] == [4, 4]
    layouts = [str(ffn.kernels[0].value.sharding) for ffn in ffns]
    return np.array(recorder.losses), layouts


distribution = keras.distribution
one, _ = run()
distribution.set_distribution(distribution.DataParallel())
four, _ = run()
np.testing.assert_allclose(four, one, rtol=1e-4)
mesh = distribution.DeviceMesh((2, 2), ["batch", "model"])
layouts = distribution.LayoutMap(mesh)
layouts[".*(up_|gate_|up/|gate/)kernel"] = (None, "model")
layouts[".*down(_|/)kernel"] = ("model", None)
distribution.set_distribution(
    distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
sharded, layouts = run()
np.testing.assert_allclose(sharded, one, rtol=1e-4)
assert all("None, 'model'" in layout for layout in layouts), layouts
"""


WIDTHS = """
import keras, numpy as np
import keras_idea as ki
from tests.support.helpers import LossRecorder, residual_model, set_random_weights

rng = np.random.default_rng(0)
x = rng.normal(size=(32, 5, 8)).astype("float32")
y = rng.normal(size=(32, 5, 1)).astype("float32")


def run(small=4):
    model = residual_model((16,))
    set_random_weights(model)
    model.compile(keras.optimizers.AdamW(0.01), "mse")
    recorder = LossRecorder()
    elastic = ki.ElasticCallback({"small": small}, begin_step=2)
    fit = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    model.fit(x, y, callbacks=[elastic, recorder], **fit)
    narrow = elastic.sliced("small")
    return np.array(recorder.losses), narrow.predict(x, verbose=0)


distribution = keras.distribution
one = run()
distribution.set_distribution(distribution.DataParallel())
for got, want in zip(run(), one, strict=True):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
mesh = distribution.DeviceMesh((2, 2), ["batch", "model"])
layouts = distribution.LayoutMap(mesh)
layouts[".*(up_|gate_)kernel"] = (None, "model")
layouts[".*down_kernel"] = ("model", None)
distribution.set_distribution(
    distribution.ModelParallel(layout_map=layouts, batch_dim_name="batch")
)
for got, want in zip(run(), one, strict=True):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
try:
    run(small=3)
except ki.KerasIdeaError as error:
    assert "a multiple of the 2 devices that share" in str(error)
else:
    raise AssertionError("a width that two devices cannot share")
"""


@pytest.mark.daily()
@pytest.mark.parametrize("script", [RUN, WIDTHS], ids=["pruning", "several widths"])
def test_four_devices_equal_one(script):
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
