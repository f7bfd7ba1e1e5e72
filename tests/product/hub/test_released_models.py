"""Released models, tiny and with unusual configs: exact in KerasHub, or refused.

Nothing is in between: what loads computes what transformers computes, on longer texts
than `hub.load` compares too.
"""

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.configs import not_taken_over
from keras_idea.hub.loading import load_with_notes
from tests.support.released_models import release, rewrite_config, theirs
from tests.support.released_rows import ALL, IMAGES, LENGTH, VOCABULARY
from tests.support.selection import rows

EXACT = [name for name, row in ALL.items() if not row.lost and name not in IMAGES]
LOST = [name for name, row in ALL.items() if row.lost]
# Allowed of the largest output, or of 1.
TOLERANCE = 1e-5


def outputs(model, ids_BT):
    """What a KerasHub task or backbone computes: logits, or an encoder's outputs."""
    causal = "CausalLM" in type(model).__name__
    net = model if causal else getattr(model, "backbone", model)
    known = {"token_ids": ids_BT, "padding_mask": np.ones_like(ids_BT)}
    known["segment_ids"] = np.zeros_like(ids_BT)
    names = [tensor.name for tensor in net.inputs]
    found = keras.Model.predict_on_batch(net, {name: known[name] for name in names})
    return found["sequence_output"] if isinstance(found, dict) else np.asarray(found)


def ids_of(length=LENGTH - 4):
    """Two rows of tokens, none of them special."""
    return np.random.default_rng(3).integers(3, VOCABULARY, (2, length), dtype="int32")


def assert_same(model, folder, length=LENGTH - 4, **told):
    """The outputs of a loaded model are those of transformers."""
    expected = theirs(folder, ids_of(length), **told)
    found = outputs(model, ids_of(length))
    apart = np.abs(found - expected).max()
    assert apart <= TOLERANCE * max(1, np.abs(expected).max())


@pytest.mark.parametrize("name", rows(EXACT, EXACT[::4]))
def test_a_released_model_is_exact(name, tmp_path):
    row = ALL[name]
    release(tmp_path, row)
    told = {}
    if row.config == "Bert" and "hidden_act" not in row.sizes:
        # KerasHub approximates it; how much that is, a note says.
        told["hidden_act"] = "gelu_pytorch_tanh"
    assert_same(ki.hub.load(tmp_path), tmp_path, **told)


@pytest.mark.parametrize("name", rows(IMAGES, list(IMAGES)[:1]))
def test_an_image_model(name, tmp_path):
    release(tmp_path, ALL[name])
    assert load_with_notes(tmp_path).lines[0].startswith("Compared with transformers")


@pytest.mark.parametrize("name", rows(LOST, LOST[::4]))
def test_a_config_that_kerashub_loses_is_refused(name, tmp_path):
    release(tmp_path, ALL[name])
    with pytest.raises(ki.errors.LoadRefused, match=ALL[name].lost):
        ki.hub.load(tmp_path)


# As transformers 4 wrote them, without its defaults.
OLDER = {
    "llama": (
        "llama llama3",
        {
            "rope_parameters": None,
            "rope_theta": 777.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            "dtype": None,
            "torch_dtype": "float32",
        },
    ),
    "mistral": (
        "mistral linear",
        {
            "rope_parameters": None,
            "rope_theta": 10000.0,
            "rope_scaling": {"type": "linear", "factor": 3.0},
        },
    ),
    "gemma3": (
        "gemma3text factor",
        {
            "rope_parameters": None,
            "layer_types": None,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window_pattern": 6,
            "_sliding_window_pattern": None,
            "hidden_activation": None,
        },
    ),
    "qwen2": (
        "qwen2",
        {
            "rope_parameters": None,
            "rope_theta": 10000.0,
            "use_sliding_window": False,
            "sliding_window": 16,
            "max_window_layers": 2,
            "layer_types": None,
        },
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_a_config_of_older_transformers(name, tmp_path):
    row, told = OLDER[name]
    model = release(tmp_path, ALL[row])
    rewrite_config(tmp_path, **told)
    import torch

    loaded = ki.hub.load(tmp_path)
    assert_same(loaded, tmp_path)
    # And the model that was saved: the older keys say the same.
    with torch.no_grad():
        expected = model(torch.tensor(ids_of()).long()).logits.numpy()
    np.testing.assert_allclose(outputs(loaded, ids_of()), expected, atol=2e-5)


# Changed after the weights were saved, by hand or by a tool.
CHANGED = {
    "quantized": ("llama", {"quantization_config": {"quant_method": "awq"}}, "awq"),
    "linear of transformers 4": (
        "llama",
        {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": None},
        "rope_type='linear'",
    ),
    "part of a head": (
        "llama",
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "partial_rotary_factor=0.5",
    ),
    "tied after all": ("llama", {"tie_word_embeddings": True}, "lm_head"),
    "untied after all": ("llama tied", {"tie_word_embeddings": False}, "lm_head"),
    "sizes": ("llama", {"intermediate_size": 44}, "gate_proj"),
    "no model type": ("llama", {"model_type": "unheard_of"}, "unheard_of"),
}


def test_an_encoder_may_say_that_nothing_is_tied():
    """It has no matrix of logits."""
    import transformers

    names = ["BertModel"]
    config = transformers.BertConfig(tie_word_embeddings=False, architectures=names)
    assert not_taken_over(config) == []


@pytest.mark.parametrize("name", CHANGED)
def test_a_config_that_contradicts_its_weights_is_refused(name, tmp_path):
    row, told, lost = CHANGED[name]
    release(tmp_path, ALL[row])
    rewrite_config(tmp_path, **told)
    with pytest.raises(ki.errors.LoadRefused, match=lost):
        ki.hub.load(tmp_path)


def test_an_architecture_that_is_not_said(tmp_path):
    """A family that KerasHub has as a language model is taken for one."""
    release(tmp_path, ALL["llama"])
    rewrite_config(tmp_path, architectures=None)
    loaded = ki.hub.load(tmp_path)
    rewrite_config(tmp_path, architectures=["LlamaForCausalLM"])
    assert_same(loaded, tmp_path)


def test_the_computing_dtype_changes_no_weight(tmp_path):
    release(tmp_path, ALL["llama epsilon"])
    plain, half = ki.hub.load(tmp_path), ki.hub.load(tmp_path, dtype="mixed_bfloat16")
    assert half.backbone.compute_dtype == "bfloat16"
    assert half.backbone.layer_norm_epsilon == 0.03
    for a, b in zip(plain.weights, half.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))
