"""KerasHub's models, masked and compacted without a run: a step at most is trained."""

import subprocess
import sys

import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import (
    MIXTURES,
    MODELS,
    batch,
    randomize,
    tiny_backbone,
    tiny_lm,
)
from tests.support.hub_training import (
    SIZE,
    compare_after_a_step,
    compiled,
    foreign,
    logits,
    prune_at_random,
    sgd,
    step,
)

TARGET = 10


UNGATED = ("gpt2", "opt", "gpt neox", "bloom", "falcon", "bart", "t5 plain")


@pytest.mark.parametrize("name", MODELS)
def test_untrained(name):
    """The families' laws that need no training."""
    model = tiny_lm(name)
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    stock = logits(model, x)
    prune_at_random(model, TARGET)
    masked = logits(model, x)
    assert np.abs(masked - stock).max() > 0.01
    narrow = ki.compact(model)
    np.testing.assert_allclose(logits(narrow, x), masked, rtol=0, atol=1e-5)
    assert type(narrow) is type(model) and foreign(narrow) == []
    for argument, per_neuron in MODELS[name].widths.items():
        assert narrow.backbone.get_config()[argument] == TARGET * per_neuron
    assert {ffn.hidden_dim for ffn in ki.find_ffns(narrow)} == {TARGET}
    # The model is as it was, and can be compacted again.
    np.testing.assert_array_equal(logits(model, x), masked)
    assert foreign(model) == []


@pytest.mark.parametrize("name", [n for n in MODELS if n not in UNGATED + MIXTURES])
def test_up_is_the_activated_matrix_and_gate_the_linear_one(name):
    """To turn the signs of gate and down changes nothing; of up and down, a lot."""
    model = tiny_lm(name)
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    before = logits(model, x)
    for matrix, same in ((1, True), (0, False)):
        for ffn in ki.find_ffns(model):
            cuts = [cut.variable for cut in ffn.cuts()]
            kernels, biases = cuts[:3], cuts[3:]  # biases of up and gate, if any
            for variable in (kernels[matrix], kernels[2], *biases[matrix:][:1]):
                variable.assign(-to_numpy(variable))
        assert np.allclose(logits(model, x), before, rtol=0, atol=1e-5) == same


def test_linear_attention():
    """Qwen3.5 as it is: most layers have no softmax."""
    model = tiny_lm("qwen3.5", layer_types=["linear_attention", "full_attention"])
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    assert len(ki.find_ffns(model)) == 2
    prune_at_random(model, TARGET)
    masked, narrow = logits(model, x), ki.compact(model)
    np.testing.assert_allclose(logits(narrow, x), masked, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama3", "gemma2"])
def test_the_next_step_of_sgd_is_the_same(name):
    model = tiny_lm(name)
    compiled(model, sgd())
    data = batch(model, np.random.default_rng(0), SIZE)
    prune_at_random(model, TARGET)
    step(model, data)
    narrow = ki.compact(model)
    for masked, slim in compare_after_a_step(model, narrow, data):
        scale = max(1.0, np.abs(masked).max())
        np.testing.assert_allclose(slim, masked, rtol=0, atol=1e-6 * scale)


def test_bfloat16_within_its_precision():
    model = tiny_lm("llama3", dtype="bfloat16")
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    prune_at_random(model, TARGET)
    expected = logits(model, x).astype("float32")
    received = logits(ki.compact(model), x).astype("float32")
    # Pruned neurons add exact zeros: what is left is the order of the sums, which may
    # round the output of an FFN (or what follows) to the next bfloat16: 2**-8.
    assert np.abs(received - expected).max() <= 2**-8 * np.abs(expected).max()


LOAD = """
import sys, numpy as np, keras, keras_hub
backbone = keras_hub.models.Backbone.from_preset(sys.argv[1])
assert "keras_idea" not in sys.modules
data = np.load(sys.argv[2])
out = backbone({k: data[k] for k in ("token_ids", "padding_mask")})
error = np.abs(keras.ops.convert_to_numpy(out) - data["out"]).max()
assert error <= 1e-6, error
print(type(backbone).__name__, backbone.intermediate_dim)
"""


@pytest.mark.parametrize("name", ["llama tied", "gemma2"])
def test_a_narrow_preset_loads_where_this_package_is_not(name, tmp_path):
    model = tiny_backbone(name)
    x, _ = batch(model, np.random.default_rng(0), SIZE)
    prune_at_random(model, TARGET)
    narrow = ki.compact(model)
    narrow.save_to_preset(tmp_path / "narrow")
    np.savez(tmp_path / "data.npz", **x, out=to_numpy(narrow(x)))
    command = [sys.executable, "-c", LOAD, "narrow", "data.npz"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    row = MODELS[name]
    width = TARGET * row.widths["intermediate_dim"]
    assert result.stdout.split() == [row.backbone, str(width)]


def test_keras_nlp_is_the_same():
    """The old name of KerasHub: a package that re-exports it."""
    import keras_hub
    import keras_nlp

    assert keras_nlp.models.Llama3Backbone is keras_hub.models.Llama3Backbone
    row = MODELS["llama3"]
    backbone = randomize(keras_nlp.models.Llama3Backbone(**row.arguments), row.scale)
    model = keras_nlp.models.Llama3CausalLM(backbone=backbone, preprocessor=None)
    assert type(model) is type(tiny_lm("llama3"))
    prune_at_random(model, TARGET)
    narrow = ki.compact(model)
    assert isinstance(narrow, keras_nlp.models.Llama3CausalLM)
    assert narrow.backbone.intermediate_dim == TARGET
