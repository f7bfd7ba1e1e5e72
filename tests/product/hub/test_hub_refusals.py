"""What make_prunable, strip and compact refuse of KerasHub's models, and why."""

import keras
import numpy as np
import pytest

import keras_idea as ki
from tests.support.helpers import residual_model, to_numpy
from tests.support.hub_models import (
    ENCODERS,
    MODELS,
    VOCABULARY,
    batch,
    tiny_backbone,
    tiny_lm,
)

_DECODER = MODELS["llama3"].arguments
_GEMMA4 = {**MODELS["gemma4"].arguments, "hidden_size_per_layer_input": 0}
_GEMMA3N = {
    "text_vocab_size": VOCABULARY,
    "text_hidden_size": 16,
    "num_hidden_layers": 1,
    "pad_token_id": 0,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": [24],
    "hidden_activation": "gelu_approximate",
    "layer_types": ["full_attention"],
    "sliding_window": 4,
    "rope_theta": 10000.0,
    "max_position_embeddings": 16,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 4,
    "altup_num_inputs": 2,
    "laurel_rank": 2,
}
_XLNET = MODELS["bloom"].arguments
_ALBERT = {**MODELS["gpt2"].arguments, "embedding_dim": 16}

# (class, arguments, what the message says)
REFUSED = {
    "gemma3n": ("Gemma3nBackbone", _GEMMA3N, "statistics over all neurons"),
    "gemma4 moe": (
        "Gemma4Backbone",
        {
            **_GEMMA4,
            "enable_moe_block": True,
            "num_experts": 2,
            "expert_intermediate_dim": 8,
            "num_experts_per_token": 1,
        },
        "mixture of experts .enable_moe_block=True",
    ),
    "gemma4 double": (
        "Gemma4Backbone",
        {**_GEMMA4, "use_double_wide_mlp": True},
        "twice as wide as the others",
    ),
    "albert": ("AlbertBackbone", _ALBERT, "AlbertBackbone cannot.*share one block"),
    "dinov2 gated": (
        "DINOV2Backbone",
        {**ENCODERS["dinov2"].arguments, "use_swiglu_ffn": True},
        "gate and its up matrix are one.*use_swiglu_ffn=True",
    ),
    "xlnet": ("XLNetBackbone", _XLNET, "not among the families .* Gemma3Backbone"),
}


def weights(model):
    return [to_numpy(variable) for variable in model.variables]


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_cannot_be_pruned(name):
    import keras_hub

    cls, arguments, message = REFUSED[name]
    backbone = getattr(keras_hub.models, cls)(**arguments)
    count = len(backbone.variables)
    with pytest.raises(ValueError, match=message):
        ki.make_prunable(backbone)
    assert len(backbone.variables) == count and ki.find_ffns(backbone) == []


def test_no_kerashub_model():
    with pytest.raises(ValueError, match="holds no KerasHub backbone.*PrunableGated"):
        ki.make_prunable(residual_model())
    with pytest.raises(ValueError, match="must be a Keras model or layer.*str"):
        ki.make_prunable("llama3")
    with pytest.raises(ValueError, match="must be a Keras model or layer.*None"):
        ki.make_prunable(None)
    with pytest.raises(ValueError, match="nothing to undo"):
        ki.strip(tiny_lm("llama3"))
    with pytest.raises(ValueError, match="nothing to undo"):
        ki.strip(residual_model())
    with pytest.raises(ValueError, match="must be a Keras model or layer"):
        ki.strip([1, 2])


def test_quantized():
    backbone = tiny_backbone("llama3")
    backbone.quantize("int8", filters="feedforward")
    with pytest.raises(ValueError, match="is quantized .int8.*Prune first"):
        ki.make_prunable(backbone)
    assert ki.find_ffns(backbone) == []


@pytest.mark.parametrize(
    "name, layer", [("llama3", "_feedforward_output_dense"), ("gemma", "gating_ffw")]
)
def test_lora_on_an_ffn(name, layer):
    backbone = tiny_backbone(name)
    getattr(backbone.transformer_layers[1], layer).enable_lora(2)
    with pytest.raises(ValueError, match="has LoRA enabled"):
        ki.make_prunable(backbone)
    # The first block's FFN was in order; it is left alone too.
    assert ki.find_ffns(backbone) == []


def test_lora_on_the_attention():
    """No narrow model could be made of it: its config knows of no LoRA."""
    model = tiny_lm("gemma")
    model.backbone.enable_lora(2)  # KerasHub enables it on queries and values
    before = weights(model)
    with pytest.raises(ValueError, match="attention/query.*has LoRA enabled"):
        ki.make_prunable(model)
    assert ki.find_ffns(model) == []
    for one, two in zip(before, weights(model), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["llama3", "gemma"])
def test_quantization_and_lora_of_a_converted_ffn(name):
    model = ki.make_prunable(tiny_lm(name))
    x, _ = batch(model, np.random.default_rng(0))
    before = to_numpy(model(x))
    ffn = ki.find_ffns(model)[0]
    (dense,) = [s for s in ffn.layer._flatten_layers() if holds(s, ffn.kernels[2])]
    with pytest.raises(ValueError, match="is being pruned, which LoRA would hinder"):
        dense.enable_lora(2)
    with pytest.raises(ValueError, match="being pruned, which quantization would"):
        dense.quantize("int8")
    np.testing.assert_array_equal(to_numpy(model(x)), before)
    # Afterwards both are as ever.
    stock = ki.strip(model)
    dense.enable_lora(2)
    np.testing.assert_array_equal(to_numpy(stock(x)), before)


def test_quantization_of_a_converted_model():
    """Keras's loop over the layers stops, instead of leaving the FFNs out."""
    model = ki.make_prunable(tiny_lm("llama3"))
    with pytest.raises(ValueError, match="being pruned, which quantization would"):
        model.quantize("int8", filters="feedforward")
    narrow = ki.compact(model)
    narrow.quantize("int8", filters="feedforward")
    block = narrow.backbone.transformer_layers[0]
    assert block._feedforward_output_dense.quantization_mode == "int8"


def holds(layer, variable):
    return any(own is variable for own in layer._trainable_variables)


def test_converted_twice():
    model = ki.make_prunable(tiny_lm("llama3"))
    before = weights(model)
    for again in (model, model.backbone):
        with pytest.raises(ValueError, match="is prunable already.*strip"):
            ki.make_prunable(again)
    for one, two in zip(before, weights(model), strict=True):
        np.testing.assert_array_equal(one, two)
    # After strip it may be converted again, by other rules.
    ki.make_prunable(ki.strip(model), row_reduce="max")
    assert ki.find_ffns(model)[0].scores.shape == (3, 24, 16)


def test_bad_arguments_leave_the_model_stock():
    model = tiny_lm("llama3")
    for arguments, message in (
        ({"ema_decay": 1.0}, "`ema_decay`"),
        ({"row_reduce": "sum"}, "`row_reduce`"),
        ({"matrix_reduce": "median"}, "`matrix_reduce`"),
    ):
        with pytest.raises(ValueError, match=message):
            ki.make_prunable(model, **arguments)
        assert ki.find_ffns(model) == []
    ki.make_prunable(model)


@pytest.mark.parametrize("compact", ["end", "off"])
def test_an_unconverted_model_is_told_what_to_do(compact):
    model = tiny_lm("llama3")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = batch(model, np.random.default_rng(0), 8)
    prune = ki.IdeaPruneCallback(10, 0, 2, compact=compact)
    with pytest.raises(
        ValueError, match="convert a KerasHub model with.*make_prunable"
    ):
        model.fit(*data, batch_size=4, verbose=0, callbacks=[prune])
