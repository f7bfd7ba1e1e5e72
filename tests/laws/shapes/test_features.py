"""Features of the residual stream, alone or with heads: what stays is a slice."""

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from tests.support import hub_models, users_models
from tests.support.helpers import to_numpy

HEADS = {"num_query_heads": 4, "num_key_value_heads": 2}
BOTH = {"features": 0.5, "kv_groups": 0.5}


def encoder(name):
    row = hub_models.ENCODERS[name]
    backbone = getattr(keras_hub.models, row.backbone)(**row.arguments)
    return hub_models.randomize(backbone, row.scale)


def vit():
    return hub_models.randomize(users_models.vision_transformer(), 0.5)


CASES = {
    "a functional ViT": (vit, {"features": 0.5}),
    "with its heads": (vit, BOTH),
    "mistral": (lambda: hub_models.tiny_lm("mistral"), {"features": 0.75}),
    "llama": (lambda: hub_models.tiny_lm("llama3", **HEADS), BOTH),
    "gpt2": (lambda: hub_models.tiny_lm("gpt2"), BOTH),
    "bert": (lambda: encoder("bert"), BOTH),
    "vit": (lambda: encoder("vit"), BOTH),
}


def inputs_of(model):
    rng = np.random.default_rng(1)
    if not isinstance(model.input, dict):
        return rng.normal(size=(4, *model.input.shape[1:])).astype("float32")
    x, _ = hub_models.batch(model, rng)
    return {n: v % 2 if n == "segment_ids" else v for n, v in x.items()}


def cut(old, new, known):
    """The old array along the axes where the new one is shorter; notes what stays."""
    for axis, (size, left) in enumerate(zip(old.shape, new.shape, strict=True)):
        if size != left and size in known:
            old = old.take(known[size], axis)
    rest = [a for a in range(old.ndim) if old.shape[a] != new.shape[a]]
    for axis in rest:
        ours, theirs = np.moveaxis(old, axis, 0), np.moveaxis(new, axis, 0)
        same = [any((part == other).all() for other in theirs) for part in ours]
        stay = np.flatnonzero(same)
        old = old.take(stay, axis)
    return old


@pytest.mark.parametrize("case", CASES)
@pytest.mark.daily("torch", "jax", "tensorflow")
def test_what_stays_is_a_slice(case, tmp_path):
    keras.utils.set_random_seed(0)
    make, targets = CASES[case]
    model = make()
    x = inputs_of(model)
    small = ki.shrink(model, targets, x)
    norms = [v for v in model.variables if v.path.endswith(("gamma", "scale"))]
    size = max(norm.shape[-1] for norm in norms)
    pairs = [
        (to_numpy(old), to_numpy(new))
        for old, new in zip(model.variables, small.variables, strict=True)
    ]
    wide = [
        (o.reshape(-1, size), n.reshape(-1, n.shape[-1]))
        for o, n in pairs
        if o.ndim > 1 and o.shape[-1] == size and o.shape[:-1] == n.shape[:-1]
    ]
    old, new = wide[0]
    features = [i for i in range(size) if (old[:, i] == new.T).all(axis=1).any()]
    assert len(features) == round(targets["features"] * size)
    for old, new in pairs:
        np.testing.assert_array_equal(cut(old, new, {size: features}), new)
    made = small.predict(x, verbose=0)
    small.save(tmp_path / "small.keras")
    again = keras.models.load_model(tmp_path / "small.keras").predict(x, verbose=0)
    for one, other in zip(
        keras.tree.flatten(made), keras.tree.flatten(again), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_config_that_cannot_say_it_is_named():
    model = hub_models.tiny_lm("llama3", **HEADS)
    with pytest.raises(ValueError, match="num_query_heads=2 too.*kv_groups"):
        ki.shrink(model, {"features": 0.5}, inputs_of(model))
    assert model.backbone.hidden_dim == 16
