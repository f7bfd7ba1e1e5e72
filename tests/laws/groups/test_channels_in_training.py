"""Channels pruned in `fit` in networks of all kinds: masked equals narrow."""

import re

import keras
import numpy as np
import pytest
from keras import layers

import keras_idea as ki
from tests.support.conv_nets import MODELS, normal, of
from tests.support.conv_nets_trained import FIRST, OFF_THE_STOCK_PATH, head_on
from tests.support.helpers import to_numpy
from tests.support.pruned_channels import (
    assert_same,
    compiled,
    data,
    is_random,
    pruned,
    widths,
)

ROWS = {**MODELS, **OFF_THE_STOCK_PATH}
#: Policy -> the distance of two of its numbers, relative.
EPSILON = {"mixed_bfloat16": 2.0**-8, "mixed_float16": 2.0**-10}


@pytest.fixture(autouse=True)
def policy():
    before = keras.config.dtype_policy()
    yield
    keras.config.set_dtype_policy(before)


@pytest.mark.parametrize("name", ROWS)
def test_narrow_equals_masked(name):
    make, stay = ROWS[name]
    masked = pruned(compiled(make))
    assert widths(masked) == stay
    narrow = ki.compact(masked)
    x, _ = data(masked, 3)
    assert_same(narrow(x), masked(x))
    if not is_random(masked):  # of another shape, other random numbers
        assert_same(narrow(x, training=True), masked(x, training=True))
        assert_same(narrow(x), masked(x))  # by the statistics of that call


IN_FIT = ("backbone", "called twice", "all channels first", "frozen normalization")


@pytest.mark.parametrize("name", IN_FIT)
def test_narrow_in_fit_equals_masked(name, tmp_path):
    make, stay = OFF_THE_STOCK_PATH[name]
    masked, narrow = pruned(compiled(make)), pruned(compiled(make), "end")
    assert widths(narrow) == stay
    x, _ = data(masked, 3)
    assert_same(narrow(x), masked(x))
    narrow.save(tmp_path / "narrow.keras")
    loaded = keras.models.load_model(tmp_path / "narrow.keras")
    np.testing.assert_array_equal(to_numpy(loaded(x)), to_numpy(narrow(x)))


@pytest.mark.parametrize("policy_name", EPSILON)
@pytest.mark.parametrize("name", ["residual", "excited", "separable", "dense net"])
def test_in_half_precision(policy_name, name):
    keras.config.set_dtype_policy(policy_name)
    make, stay = MODELS[name]
    masked = pruned(compiled(make, scaled=policy_name == "mixed_float16"))
    assert widths(masked) == stay
    narrow = ki.compact(masked)
    assert {str(v.dtype) for v in narrow.trainable_variables} == {"float32"}
    x, _ = data(masked, 3)
    for training in (False, True):
        parts = [model(x, training=training) for model in (narrow, masked)]
        assert_same(*parts, EPSILON[policy_name])


def test_a_frozen_backbone_stays():
    """Its channels are refused by name; the others are pruned, and it does not move."""
    model = compiled(lambda: head_on(False, trainable=False))
    with pytest.raises(ValueError, match="stem, last: frozen .trainable=False"):
        pruned(model)
    model = compiled(lambda: head_on(False, trainable=False))
    before = [to_numpy(v) for v in model.layers[1].variables]
    pruned(model, "end", groups=lambda group: group.name in ("head", "top"))
    assert widths(model) == [6, 8, 3, 2]
    for value, variable in zip(before, model.layers[1].variables, strict=True):
        np.testing.assert_array_equal(value, to_numpy(variable))
    x, _ = data(model, 3)
    assert model(x).shape == (3, 3)


CONV, READER = {"filters": 6, "kernel_size": 3, "name": "conv"}, (2, 1)
REFUSED = {
    "one group of all channels": (
        (5, 5, 2),
        lambda: [layers.Conv2D(**CONV), layers.GroupNormalization(1, name="n")],
        "'n' normalizes over all channels together",
    ),
    "groups without weights": (
        (5, 5, 2),
        lambda: [
            layers.Conv2D(**CONV),
            layers.GroupNormalization(3, center=False, scale=False, name="n"),
        ],
        "'n' has no weights that tell its number of channels",
    ),
    "an axis of places": (
        (2, 9, 9),
        lambda: [layers.Conv2D(**CONV, **FIRST), normal(name="n")],
        "'n' normalizes over it",
    ),
    "a norm of the kernel": (
        (5, 5, 2),
        lambda: [layers.SpectralNormalization(layers.Conv2D(**CONV), name="s")],
        "SpectralNormalization 's' mixes",
    ),
    "each frame": (
        (3, 5, 5, 2),
        lambda: [
            layers.TimeDistributed(layers.Conv2D(**CONV), name="t"),
            layers.Reshape((9, 3, 6)),
        ],
        "TimeDistributed 't' mixes",
    ),
    "a number in code": (
        (5, 5, 2),
        lambda: [layers.Conv2D(**CONV), Joined(), layers.Reshape((3, 3, 6))],
        r"code holds its number, in a Reshape to \(-1, 9, 6\)",
    ),
    "one that mixes": (
        (5, 5, 2),
        lambda: [layers.Conv2D(**CONV), layers.UnitNormalization(name="u")],
        "UnitNormalization 'u' mixes",
    ),
}


class Joined(layers.Layer):
    def call(self, x):
        return keras.ops.reshape(x, (-1, 9, 6))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_words(name):
    shape, make, reason = REFUSED[name]
    last = layers.Conv2D(*READER, **(FIRST if shape[0] == 2 else {}))
    model = of(shape, *make(), last)
    left_out = ki.explain(model).left_out
    [why] = [why for path, why in left_out.items() if path.endswith("conv")]
    assert re.search(reason, why)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=reason):
        pruned(model)
