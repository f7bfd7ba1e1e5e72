"""What cannot be pruned of KerasHub's models is rejected when `fit` begins, and why."""

import keras
import numpy as np
import pytest
from keras.src.backend.common import global_state

import keras_idea as ki
from tests.support.helpers import to_numpy
from tests.support.hub_models import (
    ENCODERS,
    MODELS,
    VOCABULARY,
    batch,
    randomize,
    tiny_lm,
)
from tests.support.hub_training import foreign, logits, prune_at_random

LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
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
_ALBERT = {**MODELS["gpt2"].arguments, "embedding_dim": 16}

# (class, arguments, what the message says)
REJECTED = {
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
}


def weights(model):
    return [to_numpy(variable) for variable in model.variables]


def assert_rejected(model, message, target=0.5, **arguments):
    """Before the first step, and the model is left as it was."""
    model.compile("adam", LOSS)
    before = weights(model)
    prune = ki.IdeaPruneCallback(target, 0, 2, **arguments)
    prune.set_model(model)
    with pytest.raises(ValueError, match=message):
        prune.on_train_begin()
    for one, two in zip(before, weights(model), strict=True):
        np.testing.assert_array_equal(one, two)
    assert foreign(model) == []


@pytest.mark.parametrize("compact", ["end", "off"])
@pytest.mark.parametrize("name", REJECTED)
def test_a_family_that_cannot_be_pruned(name, compact):
    import keras_hub

    cls, arguments, message = REJECTED[name]
    backbone = getattr(keras_hub.models, cls)(**arguments)
    assert_rejected(backbone, message, compact=compact)


@pytest.mark.parametrize("part", ["backbone", "down"])
def test_a_frozen_ffn(part):
    model = tiny_lm("llama3")
    block = model.backbone.transformer_layers[1]
    parts = {"backbone": model.backbone, "down": block._feedforward_output_dense}
    parts[part].trainable = False
    assert_rejected(model, "transformer_layer_1.*frozen.*Unfreeze")


@pytest.mark.parametrize("where", ["feedforward", "attention"])
def test_quantized(where):
    """Beside the FFNs too: no narrow model could be made of its config."""
    model = tiny_lm("llama3")
    model.quantize("int8", filters=where)
    assert_rejected(model, r"is quantized \(int8\).*Prune first, then quantize")


@pytest.mark.parametrize(
    "name, layer", [("llama3", "_feedforward_output_dense"), ("gemma", "gating_ffw")]
)
def test_lora_on_an_ffn(name, layer):
    model = tiny_lm(name)
    getattr(model.backbone.transformer_layers[1], layer).enable_lora(2)
    assert_rejected(model, "has LoRA enabled.*prune before it")
    explained = ki.explain(model)
    assert len(explained.taken) == 1  # the first block's is in order
    assert any("has LoRA enabled" in why for why in explained.left_out.values())


def test_lora_on_the_attention():
    """No narrow model could be made of it: its config knows of no LoRA."""
    model = tiny_lm("gemma")
    model.backbone.enable_lora(2)  # KerasHub enables it on queries and values
    assert_rejected(model, "attention/query.*has LoRA enabled")
    with pytest.raises(ValueError, match="has LoRA enabled.*load them into a model"):
        ki.compact(model)


#: All that makes a smaller model of one.
SMALLER = {
    "compact": ki.compact,
    "sliced": lambda model: ki.sliced(model, 0.5),
    "recommended": lambda model: ki.recommended(model, 100_000),
    "elastic": lambda model: fit(model, ki.ElasticCallback({"small": 0.5})),
    "fit": lambda model: fit(model, ki.IdeaPruneCallback(0.5, 0, 2)),
    "as_mistral": ki.hub.as_mistral,
    "learned": lambda model: ki.shrink(model, {"neurons": 9}, DATA, "learned_mask"),
    **{
        axis: lambda model, axis=axis: ki.shrink(model, {axis: 1}, DATA, refit=True)
        for axis in ("neurons", "kv_groups", "blocks", "features", "vocabulary")
    },
}
DATA = "the text"  # nothing is read of it


def fit(model, callback):
    x, y = batch(model, np.random.default_rng(0))
    model.fit(x, y, batch_size=2, verbose=0, callbacks=[callback])


@pytest.mark.parametrize("made", ["lora", "qlora", "int8", "float8"])
def test_every_function_says_so_at_once(made):
    """The same sentence, before anything else is looked at."""
    model = tiny_lm("llama3", num_layers=1)
    if made != "lora":
        mode = "int8" if made == "qlora" else made
        model.backbone.quantize(mode, filters="feedforward_output")
    if "lora" in made:
        model.backbone.enable_lora(2)
    model.compile("adam", LOSS)
    said = set()
    for call in SMALLER.values():
        with pytest.raises(ki.KerasIdeaError) as caught:
            call(model)
        said.add(str(caught.value).replace("_backbone'", "_causal_lm'"))
    assert len(said) == 1, said
    words = "has LoRA enabled" if "lora" in made else f"is quantized ({made})"
    assert words in said.pop()


@pytest.mark.parametrize("made", ["LoRA", "quantized"])
def test_a_head_of_a_task(made):
    """A task is made again from its config too."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone(**ENCODERS["bert"].arguments)
    model = keras_hub.models.BertTextClassifier(backbone, 3, preprocessor=None)
    head = next(la for la in model.layers[::-1] if isinstance(la, keras.layers.Dense))
    head.enable_lora(2) if made == "LoRA" else head.quantize("float8")
    x = {name: np.ones((4, 8), "int32") for name in model.input}
    for call in (
        ki.compact,
        lambda model: ki.sliced(model, 0.5),
        lambda model: ki.shrink(model, {"blocks": 1}, x),
        lambda model: ki.shrink(model, {"neurons": 0.5}, method="magnitude"),
    ):
        with pytest.raises(ValueError, match=f"Layer '{head.path}'.*{made}"):
            call(model)


def test_lora_that_comes_after_a_run_is_on_a_stock_model():
    model = tiny_lm("gemma")
    prune_at_random(model, 10)
    x, _ = batch(model, np.random.default_rng(0))
    before = logits(model, x)
    for block in model.backbone.transformer_layers:
        for layer in (block.gating_ffw, block.ffw_linear):
            layer.enable_lora(2)
    np.testing.assert_array_equal(logits(model, x), before)
    model.compile("adam", LOSS)
    model.fit(*batch(model, np.random.default_rng(1), 8), verbose=0)
    assert np.any(logits(model, x) != before)


@pytest.mark.daily()
@pytest.mark.parametrize("compact", ["end", "off"])
def test_a_pruned_model_is_quantized_as_a_stock_one(compact):
    """Narrow or masked: as the twin that has its weights and was never pruned."""
    model = tiny_lm("llama3")
    model.compile("adam", LOSS)
    data = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(10, 1, 2, compact=compact)
    model.fit(*data, batch_size=4, verbose=0, callbacks=[prune])
    twin = tiny_lm("llama3", intermediate_dim=10 if compact == "end" else 24)
    for one, two in zip(twin.variables, model.variables, strict=True):
        one.assign(two.value)
    for each in (model, twin):
        each.quantize("int8", filters="feedforward")
    block = model.backbone.transformer_layers[0]
    assert block._feedforward_output_dense.quantization_mode == "int8"
    np.testing.assert_array_equal(logits(model, data[0]), logits(twin, data[0]))


def test_a_backbone_that_its_config_does_not_describe():
    """As compact() would find after the run."""
    model = tiny_lm("llama3")
    model.backbone.vocabulary_size += 1
    assert_rejected(model, "The config of Llama3Backbone .* makes other variables")
    model.backbone.vocabulary_size -= 1
    data = batch(model, np.random.default_rng(0), 16)
    prune = ki.IdeaPruneCallback(10, 1, 2)
    model.fit(*data, batch_size=4, verbose=0, callbacks=[prune])
    assert model.backbone.intermediate_dim == 10
    # The dry run makes no values: Keras would give them to its next model.
    assert not global_state.get_global_attribute("uninitialized_variables", [])


def test_a_backbone_that_no_row_knows():
    """ALBERT's layers share one block: an FFN is one, however often it is called."""
    import keras_hub

    backbone = randomize(keras_hub.models.AlbertBackbone(**_ALBERT), 0.2)
    (ffn,) = ki.find_ffns(backbone)
    assert ffn.hidden_dim == 24
    tokens = np.random.default_rng(0).integers(1, VOCABULARY, (8, 8))
    x = {"token_ids": tokens, "segment_ids": tokens % 2}
    x["padding_mask"] = np.ones_like(tokens)
    outputs = keras.layers.Dense(1)(backbone(backbone.input)["sequence_output"])
    model = keras.Model(backbone.input, outputs)
    model.compile("adam", "mse")
    prune = ki.IdeaPruneCallback(10, 1, 2)
    model.fit(x, tokens[..., None], batch_size=2, verbose=0, callbacks=[prune])
    assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [10]
    assert backbone.get_config()["intermediate_dim"] == 10
    again = ki.compact(model)
    np.testing.assert_allclose(
        again.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6
    )


def test_ffns_beside_a_layer_without_shapes_are_found():
    """XLNet's attention has no shapes for Keras."""
    import keras_hub

    backbone = keras_hub.models.XLNetBackbone(**MODELS["bloom"].arguments)
    small = ki.shrink(backbone, {"neurons": 0.5}, method="magnitude")
    assert [ffn.hidden_dim for ffn in ki.find_ffns(small)] == [12, 12]
    assert small.get_config()["intermediate_dim"] == 12
