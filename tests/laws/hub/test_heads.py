"""Key/value heads of KerasHub's families: masked, narrow, made again by the config."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.finding.find_heads import find_heads
from keras_idea.lm.export.compare import model_subject
from keras_idea.step.row_ops import zero_rows
from keras_idea.surgery.narrow_in_place import shrink_in_place
from tests.support.helpers import to_numpy
from tests.support.hub_models import tiny_lm

HEADS = {"num_query_heads": 8, "num_key_value_heads": 4}
_T5GEMMA = {
    f"{side}_{name}": number
    for side in ("encoder", "decoder")
    for name, number in (("num_attention_heads", 8), ("num_key_value_heads", 4))
}
FAMILIES = {
    "mistral": HEADS,
    "qwen3": HEADS,
    "gemma": HEADS,
    "gemma2": HEADS,
    "gemma3": HEADS,
    "qwen3 moe": HEADS,
    "gpt oss": HEADS,
    "t5gemma": _T5GEMMA,
}


def without_two_heads(name):
    """A tiny model, in each of whose attentions two of four heads are zeros."""
    lm = tiny_lm(name, **FAMILIES[name])
    rng = np.random.default_rng(0)
    for group in ki.find_groups(lm, ["kv_groups"]):
        mask = np.ones(group.hidden_dim, "float32")
        mask[rng.permutation(group.hidden_dim)[:2]] = 0.0
        zero_rows(group.cuts(), keras.ops.convert_to_tensor(mask))
    return lm


def outputs(lm):
    ids = np.random.default_rng(1).integers(0, 32, (2, 8)).astype("int32")
    inputs = {name: ids if "ids" in name else np.ones_like(ids) for name in lm.input}
    return to_numpy(lm(inputs, training=False))


@pytest.mark.parametrize("name", FAMILIES)
def test_masked_equals_narrow_equals_stock(name):
    lm = without_two_heads(name)
    expected = outputs(lm)
    narrow = ki.compact(lm)
    stock = type(narrow.backbone).from_config(narrow.backbone.get_config())
    shapes = [tuple(v.shape) for v in narrow.backbone.variables]
    assert [tuple(v.shape) for v in stock.variables] == shapes
    # The same numbers without two heads of zeros: on torch and tensorflow the same
    # bits, but a compiler sums in another order (jax with AVX-512: 9 of these).
    last_bit = np.finfo("float32").eps * np.abs(expected).max()
    np.testing.assert_allclose(outputs(narrow), expected, rtol=0, atol=16 * last_bit)
    shrink_in_place(lm)
    np.testing.assert_array_equal(outputs(lm), outputs(narrow))
    assert {group.hidden_dim for group in ki.find_groups(lm, ["kv_groups"])} == {2}
    if name != "t5gemma":
        config = lm.backbone.get_config()
        heads = config["num_query_heads"], config["num_key_value_heads"]
        # Which is said now also where it followed from the heads, 16 features over 8.
        followed = name in ("mistral", "gpt oss")
        assert (*heads, config["head_dim"]) == (4, 2, 2 if followed else 8)
        # Through the cache of keys and values, which has as many heads.
        prompts = np.array([[3, 5, 7], [1, 2, 4]], "int32")
        greedy = [model_subject(each).greedy(prompts, 5) for each in (lm, narrow)]
        np.testing.assert_array_equal(*greedy)


@pytest.mark.parametrize(
    "name, why",
    [
        ("llama3", "it lies in a Llama3Backbone, whose config cannot say how wide"),
        ("gpt2", "it lies in a GPT2Backbone, whose config cannot say how wide"),
        ("gemma4", "another layer makes its keys or values"),
    ],
)
def test_heads_that_are_left_out(name, why):
    found = find_heads(tiny_lm(name))
    assert found.left_out and not found.groups
    assert all(reason.startswith(why) for reason in found.left_out.values())


def test_layers_of_one_config_have_one_number():
    lm = tiny_lm("mistral", **HEADS)
    first, _ = ki.find_groups(lm, ["kv_groups"])
    mask = keras.ops.convert_to_tensor(np.array([1, 0, 1, 1], "float32"))
    zero_rows(first.cuts(), mask)
    with pytest.raises(ValueError, match="holds one num_key_value_heads"):
        ki.compact(lm)
