"""Every argument of every backbone: a GGUF file computes the same, or is refused."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest

from keras_idea.errors import ExportRefused
from keras_idea.export import export_gguf
from keras_idea.lm.export import compare
from keras_idea.lm.export.gguf import check as gguf_check
from keras_idea.lm.export.gguf.families import FAMILIES
from tests.support.gguf_models import ALL, VOCABULARY
from tests.support.gguf_models import FAMILIES as READ_BY_TRANSFORMERS
from tests.support.gguf_reading import logits_of, read
from tests.support.hub_models import MODELS, tiny_lm

LENGTH = 24


@dataclasses.dataclass(frozen=True)
class Case:
    """Arguments that are not the usual ones.

    Attributes:
        changes: dict, argument -> value.
        refused: str, what the refusal says; "": the file computes the same.
        seen: bool, whether KerasHub 0.32 computes something else for it.
    """

    changes: dict
    refused: str = ""
    seen: bool = True


def case(refused="", seen=True, **changes):
    return Case(changes, refused, seen)


def unseen(**changes):
    return Case(changes, seen=False)


SHAPE = case(vocabulary_size=56, num_layers=3, hidden_dim=32, intermediate_dim=20)
BASE = (SHAPE, case(layer_norm_epsilon=1e-2), unseen(dropout=0.5))
ROPE = (case(rope_max_wavelength=50.0), case(rope_scaling_factor=2.0))
GROUPS = case(num_query_heads=4, num_key_value_heads=2)
NORMS = "compute with 1e-6 all the same"
LLAMA_3_1 = {
    "rope_frequency_adjustment_factor": 8.0,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_pretraining_sequence_length": 64,
}
LLAMA = (
    *BASE,
    GROUPS,
    case(rope_max_wavelength=50.0),
    case("as if it were 1", seen=False, rope_position_scaling_factor=2.0),
    case(**LLAMA_3_1),
    case(tie_word_embeddings=True),
)
LOSS = {"output_router_logits": True, "router_aux_loss_coefficient": 0.5}
EXPERTS = case(num_experts=5, top_k=3)
MOE = (EXPERTS, case("experts in every block", decoder_sparse_step=2))
# KerasHub 0.32's Qwens have their window on tensorflow alone: elsewhere the fused
# attention does without it.
CUT = keras.backend.backend() == "tensorflow"
CASES = {
    "llama": LLAMA,
    "llama3": LLAMA,
    "mistral": (*BASE, *ROPE, GROUPS, case(head_dim=12), case(sliding_window=4)),
    "qwen": (
        *BASE,
        *ROPE,
        GROUPS,
        case(tie_word_embeddings=False),
        # The context ends there, whether KerasHub cuts anything off or not.
        case(seen=CUT, use_sliding_window_attention=True, sliding_window_size=4),
    ),
    "qwen3": (
        *BASE,
        *ROPE,
        GROUPS,
        case("1e-9 or more", layer_norm_epsilon=0.0),
        case(head_dim=12),
        case(tie_word_embeddings=False),
        case(seen=CUT, sliding_window_size=4),
    ),
    "phi3": (
        *BASE,
        case(rope_max_wavelength=50.0),
        GROUPS,
        unseen(max_sequence_length=16),
        unseen(pretraining_sequence_length=16),
        case(
            "takes one by the size of its context",
            seen=False,
            rope_scaling_type="su",
            rope_scaling_short_factor=[1.0] * 4,
            rope_scaling_long_factor=[2.0] * 4,
        ),
    ),
    "gemma": (
        case(vocabulary_size=56, num_layers=3, hidden_dim=32, intermediate_dim=40),
        unseen(dropout=0.5),
        GROUPS,
        case(NORMS, layer_norm_epsilon=1e-2),
        case(head_dim=12),
        # KerasHub does not hand it on to its blocks.
        case(query_head_dim_normalize=False, head_dim=12),
        case("no other", use_post_ffw_norm=True),
        case("no other", use_post_attention_norm=True),
        case("no other", attention_logit_soft_cap=5.0),
        case("no other", final_logit_soft_cap=5.0),
        case("no other", use_sliding_window_attention=True, sliding_window_size=4),
    ),
    "gemma2": (
        case(vocabulary_size=56, num_layers=3, hidden_dim=32, intermediate_dim=40),
        unseen(dropout=0.5),
        GROUPS,
        case(NORMS, layer_norm_epsilon=1e-2),
        case(head_dim=12),
        case(query_head_dim_normalize=True, head_dim=12),
        case("no other", use_post_ffw_norm=False),
        case("no other", use_post_attention_norm=False),
        case(attention_logit_soft_cap=3.0),
        case("caps its logits", attention_logit_soft_cap=None),
        case(final_logit_soft_cap=3.0),
        case("no other", use_sliding_window_attention=False),
        case(sliding_window_size=3),
    ),
    "gemma3": (
        SHAPE,
        unseen(dropout=0.5),
        GROUPS,
        case(NORMS, layer_norm_epsilon=1e-2),
        case(head_dim=12),
        case(query_head_dim_normalize=False, head_dim=12),
        case("no other", use_query_key_norm=False),
        case("no other", use_post_ffw_norm=False),
        case("no other", use_post_attention_norm=False),
        case("no other", attention_logit_soft_cap=5.0),
        case(final_logit_soft_cap=5.0),
        case(use_sliding_window_attention=False),
        case(sliding_window_size=3),
        case("no other", local_rope_scaling_factor=2.0),
        # The sixth block has no window.
        case(num_layers=7, global_rope_scaling_factor=2.0),
        case("no other", use_bidirectional_attention=True),
    ),
    "gpt2": (
        SHAPE,
        unseen(dropout=0.5),
        case(num_heads=4),
        case(max_sequence_length=56),
    ),
    "gpt neox": (
        *BASE,
        case(num_heads=1),
        case(rotary_percentage=1.0, rotary_max_wavelength=50),
        unseen(max_sequence_length=56),
    ),
    "bloom": (
        *BASE[1:],
        # transformers' has FFNs of four times the model's width.
        case(vocabulary_size=56, num_layers=3, hidden_dim=32, intermediate_dim=128),
        case(num_heads=4),
    ),
    "smollm3": (
        case(vocabulary_size=56, hidden_dim=32, intermediate_dim=20),
        case(layer_norm_epsilon=1e-2),
        case(
            num_layers=5,
            layer_types=["full_attention"] * 5,
            rope_layer_enabled_list=[True, True, True, False, True],
        ),
        case(num_attention_heads=4, num_key_value_heads=2),
        case("no other", attention_bias=True),
        unseen(attention_dropout=0.5),
        case("no other", mlp_bias=True),
        unseen(layer_types=["sliding_attention"] * 4),
        unseen(max_position_embeddings=48),
        case(rope_theta=50.0),
    ),
    "mixtral": (
        *BASE,
        *ROPE,
        GROUPS,
        EXPERTS,
        unseen(router_jitter_noise=0.5, router_aux_loss_coef=0.5),
        unseen(output_router_logits=True),
        case(sliding_window=4),
    ),
    "qwen moe": (
        *BASE,
        *ROPE,
        GROUPS,
        *MOE,
        case(moe_intermediate_dim=20, shared_expert_intermediate_dim=28),
        case("as they are", norm_top_k_prob=True),
        case(tie_word_embeddings=True),
        case(use_sliding_window_attention=True, sliding_window_size=4),
        unseen(**LOSS),
        case("experts in every block", mlp_only_layers=[0]),
    ),
    "qwen3 moe": (
        *BASE,
        *ROPE,
        GROUPS,
        *MOE,
        case(moe_intermediate_dim=20),
        case(head_dim=12),
        case("add up to 1", norm_top_k_prob=False),
        case(tie_word_embeddings=True),
        case(seen=CUT, sliding_window_size=4),
        unseen(router_aux_loss_coefficient=0.5),
        case("experts in every block", mlp_only_layers=[0]),
    ),
    "gpt oss": (
        *BASE,
        case(rope_max_wavelength=50.0),
        GROUPS,
        EXPERTS,
        case("rounds the range of YaRN", rope_scaling_factor=2.0),
        case(sliding_window=6),
        case(head_dim=12),
    ),
}
# Not of the text: KerasHub cannot make a backbone with the first ones (0.32).
OTHERS = {
    "gemma3": {"is_embedding_model", "pooling_intermediate_dim", "embedding_dim"}
    | {"image_size", "vision_encoder"},
    "smollm3": {"partial_rotary_factor"},
    "gpt oss": {"output_router_logits"},
}


def named(cases):
    return [
        pytest.param(name, c, id=f"{name}-{'-'.join(c.changes)}")
        for name in cases
        for c in CASES[name]
    ]


def made(name, changes):
    return tiny_lm(name, **{"vocabulary_size": VOCABULARY, **ALL[name], **changes})


def logits(lm):
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (2, LENGTH)).astype("int32")
    return ids, compare.model_subject(lm).logits(ids)


def test_no_argument_is_left_out():
    import keras_hub

    assert {MODELS[name].backbone for name in CASES} == set(FAMILIES)
    for name, cases in CASES.items():
        backbone = getattr(keras_hub.models, MODELS[name].backbone)
        arguments = set(inspect.signature(backbone.__init__).parameters)
        changed = {argument for c in cases for argument in c.changes}
        left = arguments - changed - OTHERS.get(name, set())
        assert left <= {"self", "kwargs", "dtype"}, name


@pytest.mark.parametrize("name, changed", named(CASES))
def test_the_same_or_refused(name, changed, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_check, "missing", lambda modules: modules)
    lm, usual = made(name, changed.changes), made(name, {})
    ids, expected = logits(lm)
    _, before = logits(usual)
    same = expected.shape == before.shape and np.abs(expected - before).max() < 1e-5
    assert same != changed.seen
    if changed.refused:
        with pytest.raises(ExportRefused, match=changed.refused):
            export_gguf(lm, tmp_path / "x.gguf")
        return
    export_gguf(lm, tmp_path / "x.gguf")
    if name in READ_BY_TRANSFORMERS:
        found = logits_of(tmp_path / "x.gguf", ids)
        expected = expected[:, : found.shape[1]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=5e-5)
    else:  # what KerasHub computes otherwise, the file tells otherwise
        export_gguf(usual, tmp_path / "usual.gguf")
        assert differ(tmp_path / "x.gguf", tmp_path / "usual.gguf") or not changed.seen


def differ(path, other):
    (fields, tensors), (others, theirs) = read(path), read(other)
    return fields != others or any(
        tensors[name].data.tobytes() != theirs[name].data.tobytes() for name in theirs
    )


UNREAD = [name for name in CASES if name not in READ_BY_TRANSFORMERS]


@pytest.mark.parametrize("name, changed", named(UNREAD))
def test_what_transformers_does_not_read_llama_cpp_computes(name, changed, tmp_path):
    """Where llama.cpp is installed."""
    pytest.importorskip("llama_cpp")
    if changed.refused or changed.changes == {"sliding_window": 4}:
        pytest.skip("no file, or a shorter context than what is compared")
    export = export_gguf(made(name, changed.changes), tmp_path / "x.gguf")
    assert export.match is not None
