"""What KerasHub loses of released models, and this package mends: it still loses it.

A test that fails here says that a newer KerasHub does it itself: delete the rule, and
correct the table in docs/checkpoint.md.
"""

import dataclasses
import inspect
import json

import keras
import keras_hub
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.hub.loading import load_with_notes
from tests.product.hub.test_released_models import ids_of, outputs
from tests.product.hub.test_released_tokenizers import save
from tests.support import released_tokenizers as made
from tests.support.hub_models import tiny_backbone
from tests.support.released_models import release, rewrite_config, theirs
from tests.support.released_rows import ALL


def raw(folder):
    """What KerasHub makes of a folder, without us."""
    return keras_hub.models.Backbone.from_preset(str(folder), dtype="float32")


def own(cls):
    """The `get_config` that KerasHub has for a class, also after it was mended."""
    return inspect.unwrap(vars(cls)["get_config"])


@pytest.mark.parametrize(
    "name, argument, mended",
    [
        ("llama epsilon", "layer_norm_epsilon", 0.03),
        ("llama llama3", "rope_frequency_adjustment_factor", 4.0),
        ("mistral linear", "rope_scaling_factor", 3.0),
        ("mixtral linear", "rope_scaling_factor", 3.0),
        ("qwen2 linear", "rope_scaling_factor", 3.0),
        ("qwen3 linear", "rope_scaling_factor", 3.0),
        ("qwen2moe linear", "rope_scaling_factor", 3.0),
    ],
)
def test_an_argument_that_the_converter_leaves_out(name, argument, mended, tmp_path):
    release(tmp_path, ALL[name])
    assert getattr(raw(tmp_path), argument) != mended
    assert getattr(ki.hub.load(tmp_path).backbone, argument) == mended


@pytest.mark.parametrize(
    "name",
    [
        # Queries and keys are normalized with another epsilon.
        "qwen3 epsilon",
        "qwen3moe",
        # Its blocks divide by the root of a head's size.
        "gemma2 scalar",
        "gemma3text scalar",
        # The first segment is left out.
        "roberta masked",
    ],
)
def test_weights_that_kerashub_computes_something_else_with(name, tmp_path):
    release(tmp_path, ALL[name])
    if name == "qwen3moe":
        with pytest.raises(KeyError, match="num_experts"):
            raw(tmp_path)
        rewrite_config(tmp_path, num_experts=4, sliding_window=0)
    backbone, expected = raw(tmp_path), theirs(tmp_path, ids_of(40))
    model = backbone
    if ALL[name].architecture == "ForCausalLM":
        prefix = type(backbone).__name__.removesuffix("Backbone")
        task = getattr(keras_hub.models, f"{prefix}CausalLM")
        model = task(backbone=backbone, preprocessor=None)
    assert np.abs(outputs(model, ids_of(40)) - expected).max() > 1e-3


def test_the_gelu_of_a_bert_is_approximated(tmp_path):
    """It is not mended, but told: what is told here is the difference."""
    release(tmp_path, ALL["bert"])
    loaded = load_with_notes(tmp_path)
    apart = outputs(loaded.model, ids_of()) - theirs(tmp_path, ids_of())
    assert 1e-5 < np.abs(apart).max() < 1e-3
    (told,) = [line for line in loaded.lines if "tanh approximation" in line]
    size = float(told.split(" by ")[-1].split()[0])
    assert 0.3 < size / np.abs(apart).max() < 3


def test_a_mistral_is_rounded(tmp_path):
    release(tmp_path, ALL["mistral"])
    embedding = raw(tmp_path).token_embedding.embeddings
    rounded = keras.ops.convert_to_numpy(embedding)
    np.testing.assert_array_equal(rounded, rounded.astype("float16"))
    mended = ki.hub.load(tmp_path).backbone.token_embedding.embeddings
    mended = keras.ops.convert_to_numpy(mended)
    assert np.any(mended != mended.astype("float16"))


@pytest.mark.parametrize(
    "name", ["gpt2 inner", "roberta", "distilbert", "albert", "bert masked"]
)
def test_what_the_converter_cannot_read(name, tmp_path):
    """An FFN of another width, names without a prefix, a file without a pooler."""
    release(tmp_path, ALL[name])
    with pytest.raises(Exception, match=r"shape|not contain tensor"):
        raw(tmp_path)


def test_a_llama_forgets_its_tie():
    backbone = tiny_backbone("llama tied")
    cls = keras_hub.models.LlamaBackbone
    assert "tie_word_embeddings" not in own(cls)(backbone)


def test_a_tied_preset_that_kerashub_saved(tmp_path, monkeypatch):
    """Its config has no tie, and its weights no head."""
    cls = keras_hub.models.LlamaBackbone
    monkeypatch.setattr(cls, "get_config", own(cls))
    backbone = tiny_backbone("llama tied")
    lm = keras_hub.models.LlamaCausalLM(backbone, preprocessor=None)
    lm.save_to_preset(str(tmp_path))
    with pytest.raises(ValueError, match="could not be loaded"):
        keras_hub.models.CausalLM.from_preset(str(tmp_path), preprocessor=None)
    loaded = ki.hub.load(tmp_path)
    assert loaded.backbone.tie_word_embeddings
    for a, b in zip(backbone.weights, loaded.backbone.weights, strict=True):
        np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (a, b)))


def test_a_llama3_tokenizer_forgets_its_special_tokens(tmp_path):
    save(tmp_path, "llama", made.byte_level("smollm"))
    model = ki.hub.load(tmp_path)
    tokenizer = model.preprocessor.tokenizer
    cls = keras_hub.tokenizers.Llama3Tokenizer
    kept = vars(cls).get("get_config")
    config = inspect.unwrap(kept or cls.get_config)(tokenizer)
    assert "bos_token" not in config and "eos_token" not in config
    model.preprocessor.save_to_preset(str(tmp_path / "preset"))
    file = tmp_path / "preset" / "tokenizer.json"
    told = json.loads(file.read_text())["config"]
    assert (told["bos_token"], told["eos_token"]) == ("<|im_start|>", "<|im_end|>")


def test_byte_pairs_are_merged_across_words():
    vocabulary = {token: i for i, token in enumerate(["a", "b", "Ġ", "aĠ"])}
    tokenizer = keras_hub.tokenizers.BytePairTokenizer(vocabulary, ["a Ġ"])
    # Cut as GPT-2 cuts it ("a", " b"), "a " is no token.
    assert np.asarray(tokenizer("a b")).tolist() == [3, 1]


def test_a_start_token_is_put_before_every_text(tmp_path):
    save(tmp_path, "llama", made.byte_level("instruct"))
    kind = keras_hub.models.CausalLMPreprocessor
    assert kind.from_preset(str(tmp_path)).add_start_token
    assert not ki.hub.load(tmp_path).preprocessor.add_start_token


@pytest.mark.parametrize("name, file", [("mistral", "model"), ("bert", "txt")])
def test_a_tokenizer_file_that_newer_transformers_do_not_write(name, file, tmp_path):
    tokenizer = made.sentencepiece(True)[0] if name == "mistral" else made.word_piece()
    save(tmp_path, name, tokenizer)
    cls = {
        "mistral": keras_hub.tokenizers.MistralTokenizer,
        "bert": keras_hub.tokenizers.BertTokenizer,
    }[name]
    with pytest.raises(Exception, match=rf"\.{file}|do_lower_case"):
        cls.from_preset(str(tmp_path))
    assert isinstance(ki.hub.load(tmp_path).preprocessor.tokenizer, cls)


def test_a_bert_tokenizer_keeps_accents_and_spells_out_special_tokens(tmp_path):
    save(tmp_path, "bert", made.word_piece())
    tokenizer = made.word_piece()
    (tmp_path / "vocab.txt").write_text(
        "\n".join(sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get))
    )
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    stock = keras_hub.tokenizers.BertTokenizer.from_preset(str(tmp_path))
    assert not stock.strip_accents and not stock.special_tokens_in_strings


def test_a_llama_with_sentencepiece_is_converted_to_a_llama3(tmp_path):
    save(tmp_path, "llama", made.sentencepiece(True)[0])
    assert type(raw(tmp_path)).__name__ == "Llama3Backbone"


@pytest.mark.parametrize(
    "name, key", [("gemma", "rms_norm_eps"), ("gpt2", "layer_norm_epsilon")]
)
def test_an_epsilon_that_a_class_fixes(name, key, tmp_path):
    """Which is refused: no stock model has another."""
    sizes = {**ALL[name].sizes, key: 0.03}
    release(tmp_path, dataclasses.replace(ALL[name], sizes=sizes))
    layers = raw(tmp_path)._flatten_layers()
    epsilons = {layer.epsilon for layer in layers if hasattr(layer, "epsilon")}
    assert epsilons and 0.03 not in epsilons
