"""Models of which attention heads were pruned, as exports."""

import json
import pathlib

import gguf
import numpy as np
import pytest
import transformers

import keras_idea as ki
from keras_idea.export import export_gguf, export_hf, export_preset
from tests.support.exports import logits, own_decoder
from tests.support.gguf_reading import logits_of
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import VOCABULARY, with_tokenizer

SIZE = 2  # of 16 features of a model, in 8 heads


def shrunken(name):
    """A model of two key/value heads out of four, that four query heads read."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (4, 8)).astype("int32")
    if name.startswith("own"):
        tied = name == "own, tied"
        model = own_decoder(tied, num_heads=8, num_key_value_heads=4)
        x = ids
    else:
        heads = {"num_query_heads": 8, "num_key_value_heads": 4, "head_dim": SIZE}
        model = tiny_lm(name, num_layers=1, vocabulary_size=VOCABULARY, **heads)
        kind = "bpe" if name == "qwen3" else "sentencepiece"
        with_tokenizer(model, name, kind, VOCABULARY)
        x = {"token_ids": ids, "padding_mask": np.ones_like(ids)}
    model.compile(loss="sparse_categorical_crossentropy")
    return ki.shrink(model, {"kv_groups": 2}, (x, ids), method="magnitude")


def test_what_vllm_is_told_of_a_preset(tmp_path):
    """KerasHub's own set-up for vLLM sizes its cache by the heads that are left."""
    from keras_hub.src.vllm.registry import setup_vllm_model

    model = shrunken("mistral")
    export_preset(model, tmp_path / "preset")
    with setup_vllm_model(str(tmp_path / "preset")) as folder:
        told = json.loads((pathlib.Path(folder) / "config.json").read_text())
    assert told["architectures"] == ["KerasHubForCausalLM"]
    sizes = ("num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
    assert [told[name] for name in sizes] == [4, 2, SIZE, 16]
    assert told["intermediate_size"] == model.backbone.intermediate_dim


@pytest.mark.parametrize("name", ["mistral", "own", "own, tied"])
def test_a_hugging_face_folder(name, tmp_path):
    export = export_hf(shrunken(name), tmp_path / "hf")
    assert export.match.difference < 1e-5
    config = transformers.AutoConfig.from_pretrained(tmp_path / "hf")
    assert config.model_type == "mistral"
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    # KerasHub writes hidden_dim / num_query_heads, 4.
    assert config.head_dim == SIZE


@pytest.mark.parametrize("name", ["mistral", "qwen3", "own", "own, tied"])
def test_a_gguf_file(name, tmp_path):
    model = shrunken(name)
    export_gguf(model, tmp_path / "m.gguf")
    ids = np.random.default_rng(1).integers(0, VOCABULARY, (2, 12)).astype("int32")
    found = logits_of(tmp_path / "m.gguf", ids)
    expected = logits(model, ids)[:, : found.shape[1]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    start = reader.fields["general.architecture"].contents()
    keys = ("head_count", "head_count_kv", "key_length", "value_length")
    sizes = [reader.fields[f"{start}.attention.{key}"].contents() for key in keys]
    assert sizes == [4, 2, SIZE, SIZE]
