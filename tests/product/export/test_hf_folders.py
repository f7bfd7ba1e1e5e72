"""What transformers makes of a pruned and compacted model."""

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ExportRefused
from keras_idea.export import export_hf
from keras_idea.lm.export import compare
from keras_idea.lm.export.hf import folder as hf_rules
from keras_idea.lm.export.hf import tokenizer as hf_tokenizer
from tests.support.exports import NARROW, hide, listing, logits
from tests.support.hub_models import tiny_backbone, tiny_lm
from tests.support.masks import prune_by_hand
from tests.support.with_tokenizer import TEXT, VOCABULARY, with_tokenizer


class TestHuggingFace:
    """What transformers makes of a pruned and compacted model."""

    @pytest.mark.parametrize(
        "name, kind",
        [
            ("llama", "sentencepiece"),
            ("llama3", "bpe"),
            ("mistral", "sentencepiece"),
            ("qwen", "bpe"),
            ("gemma", "sentencepiece"),
        ],
    )
    def test_equals_the_pruned_model(self, name, kind, tmp_path):
        import torch
        import transformers

        lm = tiny_lm(name, num_layers=1, vocabulary_size=VOCABULARY)
        with_tokenizer(lm, name, kind, VOCABULARY)
        rng = np.random.default_rng(0)
        for ffn in ki.find_ffns(lm):
            prune_by_hand(ffn, rng.permutation(ffn.hidden_dim) < NARROW)
        export = export_hf(ki.compact(lm), tmp_path / "hf")
        assert export.match.difference <= 1e-4

        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")
        assert model.config.intermediate_size == NARROW
        assert model.dtype == torch.float32
        ids = rng.integers(0, VOCABULARY, (2, 48)).astype("int32")
        with torch.no_grad():
            found = model(torch.tensor(ids, dtype=torch.long)).logits.numpy()
        np.testing.assert_allclose(found, logits(lm, ids), rtol=0, atol=1e-4)
        model.generation_config.eos_token_id = None
        prompts = torch.tensor(ids[:, :5], dtype=torch.long)
        greedy = model.generate(prompts, do_sample=False, max_new_tokens=12)
        expected = compare.model_subject(lm).greedy(ids[:, :5], 12)
        assert greedy.tolist() == expected.tolist()

        # Some versions cut the text for Qwen as they like, beside the model.
        apart = "tokenizer" if "'tokenizer'" in str(export) else "."
        assert apart == "." or name == "qwen"
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf" / apart)
        ours = lm.preprocessor.tokenizer
        text = TEXT + "\n\n  It's 1234 naïve 漢字"
        tokens = np.asarray(ours(text)).tolist()
        start = [] if ours.start_token is None else [ours.start_token_id]
        assert tokenizer.encode(text) == start + tokens
        assert tokenizer.decode(tokens) == ours.detokenize(tokens) == text

    def test_a_tokenizer_that_cannot_be_exported_is_left_out(
        self, lm, tmp_path, monkeypatch
    ):
        difference = "'x' becomes [1]."
        monkeypatch.setattr(
            hf_tokenizer, "first_difference", lambda *encodes: difference
        )
        export = export_hf(lm, tmp_path / "hf")
        assert "Warning: there is no tokenizer in it" in str(export)
        assert "'x' becomes [1]." in str(export)
        assert listing(tmp_path / "hf") == ["config.json", "model.safetensors"]

    @pytest.mark.parametrize("package", ["safetensors", "transformers", "torch"])
    def test_no_half_of_it_is_written(self, package, lm, tmp_path, monkeypatch):
        """Without transformers, config and tokenizer could not be completed."""
        hide(monkeypatch, package)
        with pytest.raises(ExportRefused, match=rf"{package}.*\[export,torch\]"):
            export_hf(lm, tmp_path / "hf")
        assert listing(tmp_path) == []

    @pytest.mark.parametrize(
        "name, told",
        [
            ("llama3", {}),
            ("llama3", {"tie_word_embeddings": True}),
            ("llama tied", {}),
            ("qwen", {"tie_word_embeddings": True}),
            ("qwen3.5", {"tie_word_embeddings": True}),
            ("gemma", {}),
            ("gemma3", {}),
            ("gpt2", {"max_sequence_length": 64}),
        ],
    )
    def test_each_parameter_is_stored_once(self, name, told, tmp_path):
        from safetensors.numpy import load_file

        lm = tiny_lm(name, **told)
        export_hf(lm, tmp_path / "hf")
        tensors = load_file(tmp_path / "hf/model.safetensors")
        assert sum(a.size for a in tensors.values()) == lm.count_params()

    @pytest.mark.parametrize(
        "name, arguments, match",
        [
            ("gemma", {"num_key_value_heads": 2}, "exports the first of them only"),
            ("gemma", {"head_dim": 4}, "transposes the queries wrongly"),
            ("gemma", {"layer_norm_epsilon": 1e-5}, "leaves it out"),
            ("gemma2", {}, "exports Gemma 2 as Gemma 1"),
            ("gemma3", {"layer_norm_epsilon": 1e-5}, "with 1e-6 all the same"),
            ("gemma3", {"use_query_key_norm": False}, "knows no other"),
            ("gemma3", {"use_post_ffw_norm": False}, "knows no other"),
            ("gemma3", {"use_post_attention_norm": False}, "knows no other"),
            ("gemma3", {"attention_logit_soft_cap": 5.0}, "knows no other"),
            ("gemma3", {"final_logit_soft_cap": 5.0}, "knows no other"),
            ("gemma3", {"use_bidirectional_attention": True}, "knows no other"),
            (
                "gemma3",
                {"query_head_dim_normalize": False, "head_dim": 12},
                "scale the queries by head_dim all the same",
            ),
            ("mistral", {"rope_scaling_factor": 2.0}, "scaling of the positions out"),
            ("qwen", {"rope_scaling_factor": 2.0}, "scaling of the positions out"),
            ("qwen3", {}, "no export to Hugging Face for Qwen3Backbone"),
            ("phi3", {}, "no export to Hugging Face for Phi3Backbone"),
            ("smollm3", {}, "no export to Hugging Face for SmolLM3Backbone"),
        ],
    )
    def test_what_kerashub_exports_wrongly_is_refused(self, name, arguments, match):
        with pytest.raises(ExportRefused, match=match):
            hf_rules.hf_export_of(tiny_backbone(name, **arguments))

    @pytest.mark.parametrize("name", ["gemma", "gemma3"])
    def test_an_epsilon_in_float32_is_the_same_one(self, name):
        """As a GGUF file has it: Gemma 3 270M, dequantized."""
        usual = float(np.float32(1e-6))
        assert usual != 1e-6
        backbone = tiny_backbone(name, layer_norm_epsilon=usual)
        assert hf_rules.hf_export_of(backbone).rules

    @pytest.mark.parametrize("name", ["Mixtral", "QwenMoe", "Qwen3Moe", "GptOss"])
    def test_experts_are_refused(self, name):
        backbone = type(f"{name}Backbone", (), {})()
        with pytest.raises(ExportRefused, match=f"{name}Backbone; it has one for"):
            hf_rules.hf_export_of(backbone)

    def test_is_refused_before_anything_is_written(self, tmp_path, monkeypatch):
        lm = tiny_lm("qwen3", num_layers=1)
        monkeypatch.setattr(type(lm), "export_to_transformers", pytest.fail)
        with pytest.raises(ExportRefused, match="--preset"):
            export_hf(lm, tmp_path / "hf")
        assert listing(tmp_path) == []
