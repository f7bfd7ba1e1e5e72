"""KerasHub's families in other shapes: the old model masked, and its preset."""

import keras_hub
import numpy as np

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm


def batch(lm):
    ids = np.random.default_rng(1).integers(0, 32, (2, 8)).astype("int32")
    return {name: ids if "ids" in name else np.ones_like(ids) for name in lm.input}


def test_every_axis_at_once_comes_back_from_a_preset(tmp_path):
    lm = tiny_lm("qwen3", num_layers=3, num_query_heads=4, num_key_value_heads=2)
    targets = {"neurons": 0.5, "kv_groups": 1, "blocks": 2, "features": 0.75}
    small = ki.shrink(lm, targets, batch(lm))
    sizes = {
        "intermediate_dim": 12,
        "num_query_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "num_layers": 2,
        "hidden_dim": 12,
    }
    config = small.backbone.get_config()
    assert {name: config[name] for name in sizes} == sizes
    small.backbone.save_to_preset(tmp_path)
    again = keras_hub.models.Backbone.from_preset(str(tmp_path))
    inputs = batch(lm)
    np.testing.assert_array_equal(
        to_numpy(again(inputs)), to_numpy(small.backbone(inputs))
    )
    # Layers that a file was loaded into have attributes that others have not.
    fewer = [ki.shrink(m, {"blocks": 1}, inputs) for m in (again, small.backbone)]
    one, other = (to_numpy(model(inputs)) for model in fewer)
    np.testing.assert_array_equal(one, other)
