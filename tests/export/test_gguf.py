"""GGUF files: read by others, their tokenizers, types and refusals.

llama.cpp itself runs such files in `make served`, which builds it.
"""

import dataclasses
import hashlib
import json
import pathlib
import sys

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.cli import main
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import (
    compare,
    export_gguf,
    gguf_check,
    gguf_families,
    gguf_keys,
    gguf_layouts,
    gguf_tokenizer,
    gguf_types,
    hf_tokenizer,
    released,
)
from keras_idea.hub.make_tokenizer import make_tokenizer
from keras_idea.models import DecoderConfig, decoder
from tests.hub_models import randomize, tiny_backbone, tiny_lm

TEXT = "def f(x):\n    return x - 2024  # again and again, 'again'\n" * 4
VOCABULARY, WINDOW = 40, 40
LAYERS = {
    "num_layers": 4,
    "layer_types": ["full_attention"] * 4,
    "rope_layer_enabled_list": [True, True, True, False],
}
KEPT, ROUTED = {"norm_top_k_prob": False}, {"mlp_only_layers": []}
# What a tiny model must have besides, and what transformers does not take from a file
# (its classes' defaults, of large models).
FAMILIES = {
    "llama": ({}, {}),
    "llama tied": ({}, {}),
    "llama3": ({}, {}),
    "mistral": ({"sliding_window": WINDOW}, {}),
    "qwen": ({}, {}),
    # KerasHub's norms of queries and keys have this epsilon whatever the others have.
    "qwen3": ({"layer_norm_epsilon": 1e-5}, {"head_dim": 8}),
    "phi3": ({}, {"pad_token_id": None}),
    "gemma2": (
        {},
        {
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 10.0,
        },
    ),
    "gemma3": ({}, {"query_pre_attn_scalar": 8}),
    "gpt2": (
        {"max_sequence_length": 64},
        {"n_inner": 24, "vocab_size": VOCABULARY, "n_positions": 64},
    ),
    "bloom": ({"intermediate_dim": 64}, {}),
    "qwen moe": (
        {**KEPT, "shared_expert_intermediate_dim": 20},
        {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 20},
    ),
    "qwen3 moe": (
        ROUTED,
        {"moe_intermediate_size": 24, "head_dim": 8, "norm_topk_prob": True},
    ),
}
UNREAD = {
    "gemma": {},
    "gpt neox": {},
    "smollm3": LAYERS,
    "mixtral": {"sliding_window": WINDOW},
    "gpt oss": {"sliding_window": 4},
}
ALL = {**{name: arguments for name, (arguments, _) in FAMILIES.items()}, **UNREAD}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Without llama.cpp, wherever this runs."""
    monkeypatch.setattr(gguf_check, "missing", lambda modules: modules)


def tiny(name, **more):
    return tiny_lm(name, **{"vocabulary_size": VOCABULARY, **ALL[name], **more})


def with_tokenizer(name, kind, length=32):
    import keras_hub

    tokenizer = make_tokenizer(name, kind, TEXT, None if kind == "bytes" else 290)
    lm = tiny_lm(name, num_layers=1, vocabulary_size=300)
    prefix = type(lm).__name__.removesuffix("CausalLM")
    preprocessor = getattr(keras_hub.models, f"{prefix}CausalLMPreprocessor")
    lm.preprocessor = preprocessor(tokenizer, sequence_length=length)
    return lm


def read(path):
    """What gguf's reader finds: the metadata, and the tensors by their names."""
    import gguf

    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    return fields, {tensor.name: tensor for tensor in reader.tensors}


class TestWeights:
    @pytest.mark.parametrize("name", FAMILIES)
    def test_read_by_transformers(self, name, tmp_path):
        import torch
        import transformers

        lm = tiny(name)
        export_gguf(lm, tmp_path / "x.gguf")
        config = transformers.AutoConfig.from_pretrained(tmp_path, gguf_file="x.gguf")
        for key, value in FAMILIES[name][1].items():
            setattr(config, key, value)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, gguf_file="x.gguf", config=config, dtype="float32"
        ).eval()
        ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, 24))
        with torch.no_grad():
            found = model(torch.tensor(ids)).logits.numpy()
        expected = compare.model_subject(lm).logits(ids.astype("int32"))
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
        block = {**row.block, "x": (gguf_layouts.Part("y", gguf_layouts.flat),)}
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
        lm = ki.make_prunable(tiny(name, **arguments))
        for seed, ffn in enumerate(ki.find_ffns(lm)):
            rng = np.random.default_rng(seed)
            order = rng.random(tuple(ffn.mask.shape)).argsort(axis=-1)
            ffn.mask.assign((order < 10).astype("float32"))
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
            row = rows["GptOssBackbone"](b)
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


class TestTypes:
    def test_q8_0_and_what_cannot_be(self, tmp_path):
        lm = tiny_lm("llama3", num_layers=1, hidden_dim=64, intermediate_dim=40)
        export = export_gguf(lm, tmp_path / "x.gguf", "q8_0")
        assert "1 of 9 matrices are float16" in str(export)
        assert "blk.0.ffn_down.weight" in str(export)
        fields, tensors = read(tmp_path / "x.gguf")
        assert fields["general.file_type"] == 7
        types = {name: tensor.tensor_type.name for name, tensor in tensors.items()}
        assert types["blk.0.ffn_up.weight"] == "Q8_0"
        assert types["blk.0.ffn_down.weight"] == "F16"
        assert types["blk.0.attn_norm.weight"] == "F32"
        import gguf

        kernel = lm.backbone.token_embedding.embeddings.numpy()
        found = gguf.quants.dequantize(
            tensors["token_embd.weight"].data, gguf.GGMLQuantizationType.Q8_0
        )
        blocks = kernel.reshape(-1, 32)
        step = np.abs(blocks).max(axis=1, keepdims=True) / 127
        off = np.abs(found.reshape(-1, 32) - blocks) / step
        # Half a step, and the rounding of the scale to float16.
        assert 0.4 < off.max() < 0.5 + 127 * 2**-11

    @pytest.mark.parametrize("name", ["qwen moe", "gpt oss"])
    def test_what_chooses_experts_stays_float32(self, name, tmp_path):
        width = "moe_intermediate_dim" if name == "qwen moe" else "intermediate_dim"
        lm = tiny(name, hidden_dim=64, **{width: 64})
        export_gguf(lm, tmp_path / "x.gguf", "q8_0")
        _, tensors = read(tmp_path / "x.gguf")
        types = {key: tensor.tensor_type.name for key, tensor in tensors.items()}
        ends = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", ".bias")
        kept = [key for key in types if key.endswith(ends)]
        assert len(kept) == 2 * (5 if name == "qwen moe" else 9)
        assert {types[key] for key in kept} == {"F32"}
        for of in ("gate", "up", "down"):
            assert types[f"blk.0.ffn_{of}_exps.weight"] == "Q8_0"

    def test_float16_that_overflows_is_refused(self, tmp_path):
        lm = tiny_lm("llama3", num_layers=1)
        kernel = lm.backbone.token_embedding.embeddings
        kernel.assign(np.full(kernel.shape, 7e4))
        with pytest.raises(ExportRefused, match="token_embd.weight .* F16 cannot hold"):
            export_gguf(lm, tmp_path / "x.gguf", "float16")
        assert list(tmp_path.iterdir()) == []
        export_gguf(lm, tmp_path / "x.gguf")

    def test_the_table_of_positions_stays_float32(self):
        table = gguf_layouts.Tensor(
            "position_embd.weight", ((np.ones((4, 32)), np.copy),)
        )
        assert gguf_types.written(table, "q8_0").type == "F32"


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
        assert "There is NO tokenizer in it" in str(export)

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


def own_decoder(vocabulary_size):
    config = DecoderConfig(
        vocabulary_size=vocabulary_size,
        model_dim=16,
        num_layers=1,
        num_heads=2,
        hidden_dim=10,
        sequence_length=16,
    )
    return randomize(decoder(config, ffn=ki.GatedFFN), 0.3)


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
            ("qwen3 moe", {**ROUTED, "layer_norm_epsilon": 1e-5}, "with 1e-6 all the"),
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
        with pytest.raises(ExportRefused, match="keras_idea.compact"):
            export_gguf(ki.make_prunable(lm), tmp_path / "x.gguf")

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

    def test_a_window_bounds_the_context(self):
        lm = tiny("mistral")
        assert gguf_keys.context_length(lm, "sliding_window") == WINDOW
        assert gguf_keys.context_length(lm, "sliding_window", 1000) == WINDOW
        assert gguf_keys.context_length(lm, "sliding_window", 8) == 8
        assert gguf_keys.context_length(tiny("gpt2"), "", 1000) == 64
        assert gguf_keys.context_length(tiny("llama3"), "") == 1024


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
