"""GGUF files: read by others, their tokenizers, types and refusals.

llama.cpp itself runs such files in `make served`, which builds it.
"""

import dataclasses
import pathlib

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_gguf
from keras_idea.lm.export import compare
from keras_idea.lm.export.gguf import check as gguf_check
from keras_idea.lm.export.gguf import families as gguf_families
from keras_idea.lm.export.gguf import keys as gguf_keys
from keras_idea.lm.export.gguf import layouts as gguf_layouts
from keras_idea_cli import main
from tests.support.gguf_models import (
    ALL,
    FAMILIES,
    VOCABULARY,
    own_decoder,
    tiny,
)
from tests.support.gguf_reading import logits_of, read
from tests.support.hub_models import tiny_backbone, tiny_lm
from tests.support.masks import prune_by_hand

pytestmark = pytest.mark.usefixtures("alone")


class TestWeights:
    @pytest.mark.parametrize("name", FAMILIES)
    def test_read_by_transformers(self, name, tmp_path):
        lm = tiny(name)
        export_gguf(lm, tmp_path / "x.gguf")
        ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 24))
        expected = compare.model_subject(lm).logits(ids.astype("int32"))
        found = logits_of(tmp_path / "x.gguf", ids)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)

    @pytest.mark.parametrize("name", ALL)
    def test_llama_cpp_knows_each_tensor_and_key(self, name, tmp_path):
        import gguf

        lm = tiny(name)
        export_gguf(lm, tmp_path / "x.gguf")
        fields, tensors = read(tmp_path / "x.gguf")
        names = {value: key for key, value in gguf.MODEL_ARCH_NAMES.items()}
        arch = names[fields["general.architecture"]]
        kinds = gguf.MODEL_TENSORS[arch]
        known = {
            f"{gguf.TENSOR_NAMES[kind].format(bid=bid)}.{end}"
            for kind in kinds
            for bid in range(lm.backbone.num_layers)
            for end in ("weight", "bias")
        }
        assert set(tensors) <= known
        keys = [key for key in vars(gguf.Keys).values() if isinstance(key, type)]
        known = {str(text) for key in keys for text in vars(key).values()}
        own = {key.replace(fields["general.architecture"], "{arch}") for key in fields}
        assert {key for key in own if not key.startswith("GGUF.")} <= known
        count = sum(int(np.prod(tensor.shape)) for tensor in tensors.values())
        weights = lm.backbone.count_params()
        copied = lm.backbone.token_embedding.embeddings if name == "gpt neox" else []
        follows = 4 * 4 if name == "smollm3" else 0  # a table of each block
        assert count == weights + np.size(copied) - follows

    def test_the_first_gemma_equals_its_hugging_face_folder(self, tmp_path):
        from safetensors.numpy import load_file

        lm = tiny_lm("gemma", vocabulary_size=VOCABULARY)
        ki.export.export_hf(lm, tmp_path / "hf")
        export_gguf(lm, tmp_path / "x.gguf")
        theirs = load_file(tmp_path / "hf/model.safetensors")
        import gguf

        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA, 2)
        _, tensors = read(tmp_path / "x.gguf")
        assert len(tensors) == 20
        for key, array in theirs.items():
            if key == "lm_head.weight":
                continue
            name = names.get_name(key, try_suffixes=(".weight",))
            # As llama.cpp's converter does.
            expected = array + 1 if key.endswith("norm.weight") else array
            np.testing.assert_allclose(tensors.pop(name).data, expected, atol=1e-6)
        assert not tensors

    def test_frequencies_of_llama_3_1(self):
        arguments = {
            "rope_frequency_adjustment_factor": 8.0,
            "rope_low_freq_factor": 1.0,
            "rope_high_freq_factor": 4.0,
            "rope_pretraining_sequence_length": 64,
        }
        backbone = tiny_backbone("llama3", hidden_dim=64, **arguments)
        (factors,) = gguf_keys.position_factors(backbone)
        import torch
        import transformers

        config = transformers.LlamaConfig(
            hidden_size=64,
            num_attention_heads=2,
            rope_parameters={
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        )
        init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"]
        theirs, _ = init(config, torch.device("cpu"))
        plain = 10000.0 ** -(np.arange(0, 32, 2) / 32)
        np.testing.assert_allclose(plain / factors.values(), theirs, rtol=1e-5)

    def test_a_variable_without_a_place_is_refused(self):
        backbone = tiny_backbone("llama3", num_layers=1)
        row = gguf_families.family_of(backbone)
        block = dict(row.block)
        del block["ffn_up.weight"]
        with pytest.raises(ExportRefused, match="feedforward_intermediate_dense"):
            gguf_layouts.tensors(backbone, row.ends, block)
        block = {**row.block, "x": (("y", gguf_layouts.flat),)}
        with pytest.raises(ExportRefused, match="has no 'y' in block 0"):
            gguf_layouts.tensors(backbone, row.ends, block)

    def test_experts_that_transformers_does_not_read(self, tmp_path):
        for name in ("mixtral", "gpt oss"):
            lm = tiny(name)
            fields, tensors = read(export_gguf(lm, tmp_path / f"{name}.gguf").path)
            block = lm.backbone.transformer_layers[1]
            ours = {v.path.split("/")[-1]: v.numpy() for v in block.variables}
            found = {key: tensor.data for key, tensor in tensors.items()}
            gate, up, down = (
                found[f"blk.1.ffn_{of}_exps.weight"] for of in ("gate", "up", "down")
            )
            if name == "mixtral":
                gates = ours["expert_feedforward_gate_dense"]
                ups = ours["expert_feedforward_intermediate_dense"]
                downs = ours["expert_feedforward_output_dense"]
            else:
                both, bias = ours["gate_up_proj"], ours["gate_up_proj_bias"]
                gates, ups, downs = both[..., ::2], both[..., 1::2], ours["down_proj"]
                for of, first in (("gate", 0), ("up", 1)):
                    np.testing.assert_array_equal(
                        found[f"blk.1.ffn_{of}_exps.bias"], bias[:, first::2]
                    )
                assert fields["gpt-oss.attention.sliding_window"] == 5
                pattern = fields["gpt-oss.attention.sliding_window_pattern"]
                assert pattern == [False, True]
            for expert in range(4):
                np.testing.assert_array_equal(gate[expert], gates[expert].T)
                np.testing.assert_array_equal(up[expert], ups[expert].T)
                np.testing.assert_array_equal(down[expert], downs[expert].T)

    def test_widths_and_the_tied_matrix_of_qwen_moe(self, tmp_path):
        lm = tiny("qwen moe", tie_word_embeddings=True)
        export_gguf(lm, tmp_path / "x.gguf")
        fields, tensors = read(tmp_path / "x.gguf")
        assert fields["qwen2moe.expert_feed_forward_length"] == 24
        assert fields["qwen2moe.expert_shared_feed_forward_length"] == 20
        table = tensors["token_embd.weight"].data
        np.testing.assert_array_equal(tensors["output.weight"].data, table)


class TestMixturesInLlamaCpp:
    """Where llama.cpp is installed: what `make served` does, in a second."""

    @pytest.fixture(autouse=True)
    def installed(self, alone, monkeypatch):
        pytest.importorskip("llama_cpp")
        monkeypatch.setattr(gguf_check, "missing", lambda modules: [])

    @pytest.mark.parametrize(
        "name, arguments",
        [
            ("mixtral", {}),
            ("qwen moe", {}),
            ("qwen moe", {"tie_word_embeddings": True}),
            ("qwen3 moe", {}),
            ("gpt oss", {}),
        ],
    )
    def test_it_computes_a_pruned_one(self, name, arguments, tmp_path):
        lm = tiny(name, **arguments)
        for seed, ffn in enumerate(ki.find_ffns(lm)):
            rng = np.random.default_rng(seed)
            order = rng.random(tuple(ffn.mask.shape)).argsort(axis=-1)
            prune_by_hand(ffn, order < 10)
        export = export_gguf(ki.compact(lm), tmp_path / "x.gguf")
        assert export.match.difference < 1e-4
        assert export.match.tokens == 2 * compare.NUM_TOKENS

    def test_a_mistake_is_found(self, tmp_path, monkeypatch):
        def swapped(b):
            row = rows["Qwen3MoeBackbone"](b)
            gate, up = "ffn_gate_exps.weight", "ffn_up_exps.weight"
            block = {**row.block, gate: row.block[up], up: row.block[gate]}
            return dataclasses.replace(row, block=block)

        def shifted(b):
            row = rows["GptOssBackbone"]
            window = {"attention.sliding_window": b.sliding_window}
            return dataclasses.replace(row, keys=lambda b: row.keys(b) | window)

        rows = dict(gguf_families.FAMILIES)
        wrong = {"Qwen3MoeBackbone": swapped, "GptOssBackbone": shifted}
        monkeypatch.setattr(gguf_families, "FAMILIES", rows | wrong)
        for name in ("qwen3 moe", "gpt oss"):
            with pytest.raises(ExportFailed, match="computes other logits"):
                export_gguf(tiny(name), tmp_path / "x.gguf")

    def test_rounded_weights_choose_other_experts(self, tmp_path):
        lm = tiny("qwen3 moe", hidden_dim=64, moe_intermediate_dim=64)
        export = export_gguf(lm, tmp_path / "x.gguf", "q8_0")
        assert "logits of 10% of the tokens within" in str(export)
        assert "rounded weights choose" in str(export)


class TestCommandLine:
    def test_a_run(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        pathlib.Path("run").mkdir()
        own_decoder(256).save("run/narrow.keras")
        arguments = ["export", "run", "--gguf", "x.gguf", "--gguf-dtype", "float16"]
        assert main(arguments) == 0
        printed = capsys.readouterr().out
        assert (
            "a GGUF file of Llama3CausalLM for llama.cpp's 'llama', float16" in printed
        )
        assert "it was NOT run" in printed
        assert main(arguments) == 2
        assert "exists already" in capsys.readouterr().err

    def test_its_options_are_its_own(self, capsys):
        assert main(["export", "x", "--hf", "y", "--gguf-dtype", "q8_0"]) == 2
        assert "`--gguf-dtype` is for --gguf" in capsys.readouterr().err
