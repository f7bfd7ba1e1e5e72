"""Tokenizers in GGUF files."""

import hashlib
import json

import pytest

import keras_idea as ki
from keras_idea.errors import ExportRefused
from keras_idea.export import export_gguf
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from keras_idea.lm.export.gguf import released
from keras_idea.lm.export.gguf import tokenizer as gguf_tokenizer
from keras_idea.lm.export.hf import tokenizer as hf_tokenizer
from tests.support.gguf_models import (
    TEXT,
    own_decoder,
    with_tokenizer,
)
from tests.support.gguf_reading import read

pytestmark = pytest.mark.usefixtures("alone")


class TestTokenizer:
    def test_byte_level(self, tmp_path):
        lm = with_tokenizer("llama3", "bpe")
        export_gguf(lm, tmp_path / "x.gguf")
        fields, _ = read(tmp_path / "x.gguf")
        tokenizer = lm.preprocessor.tokenizer
        assert fields["tokenizer.ggml.model"] == "gpt2"
        assert fields["tokenizer.ggml.pre"] == "superbpe"
        tokens = fields["tokenizer.ggml.tokens"]
        assert len(tokens) == 300  # as many as the model knows
        assert [tokens[i] for i in tokenizer.vocabulary.values()] == list(
            tokenizer.vocabulary
        )
        assert fields["tokenizer.ggml.merges"] == released.merges_of(tokenizer)
        assert fields["tokenizer.ggml.add_bos_token"] is True
        assert fields["tokenizer.ggml.bos_token_id"] == tokenizer.start_token_id
        types = fields["tokenizer.ggml.token_type"]
        assert types[tokenizer.end_token_id] == gguf_tokenizer.CONTROL
        assert types[0] == gguf_tokenizer.NORMAL
        assert types[299] == gguf_tokenizer.UNUSED
        assert fields["llama.context_length"] == 32

    def test_sentencepiece(self, tmp_path):
        import sentencepiece

        lm = with_tokenizer("gemma", "sentencepiece")
        export_gguf(lm, tmp_path / "x.gguf")
        fields, _ = read(tmp_path / "x.gguf")
        model = sentencepiece.SentencePieceProcessor(
            model_proto=lm.preprocessor.tokenizer.proto
        )
        count = model.GetPieceSize()
        tokens, scores, types = (
            fields[f"tokenizer.ggml.{name}"]
            for name in ("tokens", "scores", "token_type")
        )
        assert tokens[:count] == [model.IdToPiece(i) for i in range(count)]
        assert scores[:count] == [model.GetScore(i) for i in range(count)]
        assert len(tokens) == 300 and types[model.unk_id()] == gguf_tokenizer.UNKNOWN
        assert fields["tokenizer.ggml.add_space_prefix"] is False

    @pytest.mark.parametrize("size", [256, 257])
    def test_bytes_of_the_own_decoder(self, tmp_path, size):
        export_gguf(own_decoder(size), tmp_path / "x.gguf", length=20)
        fields, _ = read(tmp_path / "x.gguf")
        tokens = fields["tokenizer.ggml.tokens"]
        assert len(tokens) == size and tokens[ord("a")] == "a" and tokens[32] == "Ġ"
        assert fields["tokenizer.ggml.eos_token_id"] == (256 if size > 256 else 255)
        assert fields["llama.context_length"] == 20

    def test_another_vocabulary_of_the_own_decoder_is_not_bytes(self, tmp_path):
        export = export_gguf(own_decoder(300), tmp_path / "x.gguf")
        assert "Warning: there is no tokenizer in it" in str(export)

    def test_merges_of_digits_are_refused(self):
        tokenizer = make_tokenizer("qwen", "bpe", TEXT, 290)
        assert not any(set(m) & set("0123456789") for m in tokenizer.merges[1:])
        with pytest.raises(ExportRefused, match="a merge with a digit .'2 0'"):
            gguf_tokenizer._check_merges(["a b", "2 0"])

    def test_a_smaller_model_than_its_tokenizer_is_refused(self, tmp_path):
        lm = with_tokenizer("qwen", "bpe")
        with pytest.raises(ExportRefused, match="the model knows 280"):
            gguf_tokenizer.vocabulary_of(lm.preprocessor, 280)

    def test_a_released_one_cuts_text_as_it_does(self, tmp_path, monkeypatch):
        lm = with_tokenizer("qwen", "bpe")
        for module in (gguf_tokenizer, hf_tokenizer):
            monkeypatch.setattr(module, "released_name", lambda tokenizer: "qwen2")
        export = export_gguf(lm, tmp_path / "x.gguf")
        assert "Its tokenizer is a released one" in str(export)
        fields, _ = read(tmp_path / "x.gguf")
        assert fields["tokenizer.ggml.pre"] == "qwen2"
        export = ki.export.export_hf(lm, tmp_path / "hf")
        assert "Its tokenizer is a released one" in str(export)
        # As KerasHub has written it.
        assert (tmp_path / "hf/merges.txt").is_file()
        # Which KerasHub leaves out, and llama.cpp's converter asks for.
        config = json.loads((tmp_path / "hf/config.json").read_text())
        assert config["architectures"] == ["Qwen2ForCausalLM"]

    def test_released_ones_are_known_by_their_merges(self, monkeypatch):
        tokenizer = make_tokenizer("qwen", "bpe", TEXT, 290)
        assert released.released_name(tokenizer) is None
        lines = "\n".join(tokenizer.merges[1:])
        digest = hashlib.sha256(lines.encode()).hexdigest()
        monkeypatch.setitem(released.RELEASED, digest, "here")
        assert released.released_name(tokenizer) == "here"
