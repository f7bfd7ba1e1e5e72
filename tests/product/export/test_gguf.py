"""GGUF files of Hugging Face folders: read by transformers, or rejected."""

import gguf
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.export import gguf as module
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_gguf
from tests.product.hub.test_released_tokenizers import save
from tests.support import released_tokenizers as made
from tests.support.released_models import release
from tests.support.released_rows import ALL
from tests.support.selection import rows
from tests.support.training_text import TEXT, with_tokenizer


def fields_of(path):
    reader = gguf.GGUFReader(path)
    return {name: field.contents() for name, field in reader.fields.items()}


NIGHT = pytest.mark.daily()


@pytest.mark.parametrize(
    "name, told",
    [
        ("llama tied", {}),
        ("qwen3 epsilon", {"head_dim": 8}),
        pytest.param("gemma2 by width", {"query_pre_attn_scalar": 8}, marks=NIGHT),
        ("gemma2 scalar", {"query_pre_attn_scalar": 6}),
        pytest.param("gemma3text scalar", {"query_pre_attn_scalar": 6}, marks=NIGHT),
    ],
)
def test_transformers_computes_the_same_of_a_file(name, told, tmp_path):
    """It does not read what llama.cpp divides queries by: a head's size."""
    import torch
    import transformers

    theirs = release(tmp_path / "source", ALL[name])
    model = ki.hub.load(tmp_path / "source")
    export_gguf(model, tmp_path / "m.gguf", "f32")
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="m.gguf",
        dtype="float32",
        attn_implementation="eager",
        **told,
    ).eval()
    ids = torch.arange(5, 45)[None]
    with torch.no_grad():
        np.testing.assert_allclose(read(ids).logits, theirs(ids).logits, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    rows(["llama llama3", "mixtral", "qwen2moe", "gpt2"], ["llama llama3", "mixtral"]),
)
def test_a_file_that_transformers_does_not_read_whole(name, tmp_path):
    release(tmp_path / "source", ALL[name])
    export_gguf(tmp_path / "source", tmp_path / "m.gguf", "bf16")
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    if name == "llama llama3":
        assert tensors["rope_freqs.weight"].data.max() == pytest.approx(4.0)
    if name == "mixtral":
        assert tensors["blk.1.ffn_up_exps.weight"].shape.tolist() == [24, 40, 4]
    if name == "gpt2":
        assert tensors["blk.1.attn_qkv.weight"].shape.tolist() == [24, 72]


def test_what_a_file_says(tmp_path):
    source = tmp_path / "source"
    save(source, "llama", made.byte_level("smollm"))
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}")
    export_gguf(ki.hub.load(source), tmp_path / "m.gguf")
    fields = fields_of(tmp_path / "m.gguf")
    assert fields["tokenizer.chat_template"] == "{{ messages[0].content }}"
    assert fields["tokenizer.ggml.pre"] == "smollm"
    assert fields["llama.context_length"] == 160


@pytest.mark.parametrize("name, kind", [("llama", "sentencepiece"), ("llama3", "bpe")])
def test_a_tokenizer_made_here_comes_back(name, kind, tmp_path):
    lm = with_tokenizer(name, kind)
    export_gguf(lm, tmp_path / "m.gguf", "q8_0")
    again = ki.hub.load(tmp_path / "m.gguf")
    ours, other = (m.preprocessor.tokenizer for m in (again, lm))
    for text in ("the lazy dog", "  x = 2024\n    y", TEXT):
        assert np.asarray(ours(text)).tolist() == np.asarray(other(text)).tolist()


def test_refused(tmp_path, monkeypatch):
    release(tmp_path / "source", ALL["qwen2moe normalized"])
    with pytest.raises(ExportRefused, match="norm_topk_prob"):
        export_gguf(tmp_path / "source", tmp_path / "m.gguf")
    release(tmp_path / "bert", ALL["bert"])
    with pytest.raises(ExportRefused, match="bert"):
        export_gguf(tmp_path / "bert", tmp_path / "m.gguf")
    with pytest.raises(ExportRefused, match="llama-cpp-python"):
        export_gguf(tmp_path / "bert", tmp_path / "m.gguf", "q4_k_m")
    with pytest.raises(ExportRefused, match="path"):
        export_gguf(tmp_path / "bert", tmp_path / "m.bin")
    release(tmp_path / "llama", ALL["llama"])
    monkeypatch.setattr(module, "_ERRORS", {"F16": 1e-9})
    with pytest.raises(ExportFailed, match="differs"):
        export_gguf(tmp_path / "llama", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
