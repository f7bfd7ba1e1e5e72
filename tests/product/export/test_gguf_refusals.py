"""What no GGUF file is written of, and the context that one tells."""

import sys

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_gguf
from keras_idea.lm.export.gguf import families as gguf_families
from keras_idea.lm.export.gguf import keys as gguf_context
from keras_idea.lm.export.gguf import types as gguf_types
from tests.support.gguf_models import (
    KEPT,
    LAYERS,
    ROUTED,
    WINDOW,
    own_decoder,
    tiny,
    with_tokenizer,
)
from tests.support.gguf_reading import read
from tests.support.hub_models import tiny_backbone, tiny_lm
from tests.support.masks import prune_by_hand

pytestmark = pytest.mark.usefixtures("alone")


class TestRefused:
    @pytest.mark.parametrize(
        "name, arguments, match",
        [
            ("opt", {}, "llama.cpp does not know it"),
            ("falcon", {}, "ALiBi"),
            ("gemma4", {}, "nobody has written down"),
            ("llama", {"rope_position_scaling_factor": 2.0}, "as if it were 1"),
            ("gemma", {"layer_norm_epsilon": 1e-5}, "compute with 1e-6 all the same"),
            ("gemma", {"final_logit_soft_cap": 5.0}, "llama.cpp's Gemma has no other"),
            ("gemma2", {"final_logit_soft_cap": None}, "caps its logits"),
            ("gemma3", {"attention_logit_soft_cap": 5.0}, "Gemma 3 has no other"),
            ("smollm3", {}, "every fourth layer"),
            ("smollm3", {**LAYERS, "mlp_bias": True}, "SmolLM3 has no other"),
            ("mixtral", {"num_experts": 1025, "num_layers": 1}, "at most 1024"),
            ("qwen moe", {}, "leaves the weights of the chosen experts"),
            ("qwen moe", {**KEPT, "decoder_sparse_step": 2}, "experts in every block"),
            ("qwen3 moe", {}, "experts in every block"),
            ("qwen3 moe", {**ROUTED, "norm_top_k_prob": False}, "add up to 1"),
            ("gpt oss", {"rope_scaling_factor": 2.0}, "rounds the range of YaRN"),
            ("gpt oss", {"sliding_window": None}, "GPT-OSS has a window"),
            # llama.cpp would end the process: of this, and of the next.
            ("gpt oss", {"num_layers": 1}, "and 2 blocks or more"),
            ("gpt oss", {"head_dim": 7}, "heads of an even size"),
        ],
    )
    def test_what_llama_cpp_computes_otherwise(self, name, arguments, match):
        with pytest.raises(ExportRefused, match=match):
            gguf_families.family_of(tiny_backbone(name, **arguments))

    @pytest.mark.parametrize("name", ["Qwen3_5Moe", "T5"])
    def test_without_a_row(self, name):
        backbone = type(f"{name}Backbone", (), {})()
        with pytest.raises(ExportRefused, match=f"{name}Backbone has no export"):
            gguf_families.family_of(backbone)

    def test_a_shared_expert_without_a_gate(self):
        backbone = tiny_backbone("qwen moe", **KEPT)
        kernel = backbone.transformer_layers[1].mlp.shared_expert_gate_dense.kernel
        kernel.assign(np.zeros(kernel.shape))
        with pytest.raises(ExportRefused, match="llama.cpp divides by it"):
            gguf_families.family_of(backbone)

    def test_what_is_asked_for_wrongly(self, tmp_path):
        lm = tiny_lm("llama3", num_layers=1)
        with pytest.raises(ValueError, match="`dtype` must be .*'q8_0'"):
            export_gguf(lm, tmp_path / "x.gguf", "int8")
        with pytest.raises(ValueError, match="`length` must be an integer >= 1"):
            export_gguf(lm, tmp_path / "x.gguf", length=0)
        with pytest.raises(ExportRefused, match="ends in '.gguf'"):
            export_gguf(lm, tmp_path / "x")
        [ffn] = ki.find_ffns(lm)
        prune_by_hand(ffn, np.arange(ffn.hidden_dim) > 0)
        with pytest.raises(ExportRefused, match="keras_idea.compact"):
            export_gguf(lm, tmp_path / "x.gguf")

    def test_without_its_package(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "gguf", None)
        with pytest.raises(ExportRefused, match=r'"keras-idea\[gguf\]"'):
            export_gguf(own_decoder(256), tmp_path / "x.gguf")
        assert list(tmp_path.iterdir()) == []

    def test_a_file_that_is_not_the_model_is_not_kept(self, tmp_path, monkeypatch):
        (tmp_path / "x.gguf").write_text("earlier")
        monkeypatch.setattr(
            gguf_types.Written,
            "values",
            lambda part: (
                np.random.default_rng().normal(size=part.tensor.shape).astype("f")
            ),
        )
        with pytest.raises(ExportFailed, match="was not written as it is"):
            export_gguf(own_decoder(256), tmp_path / "x.gguf", overwrite=True)
        assert (tmp_path / "x.gguf").read_text() == "earlier"
        assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


class TestContext:
    """How many tokens a server may give, and which bound that is."""

    @staticmethod
    def of(lm, window="", length=None):
        found = gguf_context.context_of(lm, "llama", window, length)
        return found.length, str(found)

    def test_a_window(self):
        lm = tiny("mistral")
        for length in (None, 1000, WINDOW):
            found, told = self.of(lm, "sliding_window", length)
            assert found == WINDOW
            assert told.startswith(
                f"Its context is {WINDOW} tokens: the sliding window"
            )

    def test_shorter_than_the_window(self):
        lm = with_tokenizer("mistral", "sentencepiece", length=16)
        lm.backbone.sliding_window = WINDOW
        found, told = self.of(lm, "sliding_window")
        assert found == 16 and "tokens: the sequence length of its preprocessor" in told
        found, told = self.of(lm, "sliding_window", 8)
        assert found == 8 and "tokens: the length asked for" in told
        assert "window" not in told

    def test_positions(self):
        for length in (None, 1000):
            found, told = self.of(tiny("gpt2"), "", length)
            assert found == 64 and "`max_sequence_length` of the model" in told

    def test_nothing_bounds_it(self):
        found, told = self.of(tiny("llama3"))
        assert found == 1024 and "the default. `length` (--length) sets" in told

    def test_the_export_tells_it(self, tmp_path):
        lm = with_tokenizer("mistral", "sentencepiece", length=16)
        export = export_gguf(lm, tmp_path / "x.gguf")
        # The window of 4 is KerasHub's, and shorter.
        assert "Its context is 4 tokens: the sliding window" in str(export)
        fields, _ = read(tmp_path / "x.gguf")
        assert fields["llama.context_length"] == 4
