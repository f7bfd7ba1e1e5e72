"""Networks of keras.io's examples: pruned in `fit`, or left out with a reason."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.keras_io_nets import EXAMPLES, DepthToSpace, euclidean_distance
from tests.support.pruned_channels import (
    assert_same,
    compiled,
    data,
    is_random,
    pruned,
    widths,
)

#: name -> (channels of each group once half went, path -> why others stay).
ROWS = {
    "unet": ([4, 6, 6, 8, 8, 8, 8, 6, 6, 4, 4], {}),
    "cam": ([4, 6], {"last_conv": "it is an output of the model"}),
    "super_resolution": ([8, 8, 4], {"shuffled": "code holds its number"}),
    "siamese": ([2, 4], {}),
    "autoencoder": ([4, 4, 4, 4], {}),
    "discriminator": ([4, 6, 8], {}),
    "generator": ([4, 4, 8], {}),
    "dense_net": ([4, 8, 2, 8, 2, 4, 8, 2, 8, 2], {}),
    "speaker": ([2, 2, 4, 4, 6, 6, 6], {}),
    "ct_scan": ([2, 2, 4], {}),
    "detector": ([4, 6, 8, 4, 4, 4, 4, 4, 4], {}),
    "conv_mixer": ([6, 6, 6], {}),
    "captcha": ([4, 6], {}),
}

#: name -> how a file of it is loaded.
HOW = {
    "siamese": {
        "safe_mode": False,
        "custom_objects": {"euclidean_distance": euclidean_distance},
    },
    "super_resolution": {"custom_objects": {"DepthToSpace": DepthToSpace}},
}


#: In float32 its normalizations, of few numbers each, make more of rounding.
IN_FLOAT64 = ("unet",)


@pytest.fixture(autouse=True)
def policy():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


def test_each_has_a_row():
    assert list(ROWS) == list(EXAMPLES)


@pytest.mark.parametrize("name", ROWS)
def test_pruned_as_the_example_is(name, tmp_path):
    if name in IN_FLOAT64:
        keras.config.set_dtype_policy("float64")
    stay, reasons = ROWS[name]
    masked = compiled(EXAMPLES[name], as_made=True)
    found = ki.explain(masked).left_out
    for path, reason in reasons.items():
        assert reason in found[path]
    before = masked.count_params()
    assert widths(pruned(masked)) == stay
    narrow = ki.compact(masked)
    assert narrow.count_params() < before
    x, _ = data(masked, 3)
    for training in (False, True)[: 1 if is_random(masked) else 2]:
        some, others = (m(x, training=training) for m in (narrow, masked))
        keras.tree.map_structure(assert_same, some, others)
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras", **HOW.get(name, {}))
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_array_equal(to_numpy(a), to_numpy(b)),
        loaded(x),
        narrow(x),
    )
