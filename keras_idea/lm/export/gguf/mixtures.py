"""The KerasHub mixtures of experts that llama.cpp computes: one row of data each.

Whether the weights of the chosen experts are made to add up to 1 is the
architecture's in llama.cpp, and an argument in KerasHub.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_idea.hub.family import Rule, has
from keras_idea.lm.export.gguf import keys, places
from keras_idea.lm.export.gguf.family import GGUFFamily
from keras_idea.lm.export.gguf.keys import Value
from keras_idea.lm.export.gguf.layouts import (
    Places,
    as_it_is,
    every_second,
    experts,
    first_half,
    flat,
    from_heads,
    heads,
    matrix,
    second_half,
)
from keras_idea.lm.export.gguf.places import part, with_bias

_MOST = 1024
_COUNT = Rule(
    lambda b: b.num_experts <= _MOST,
    f"llama.cpp has at most {_MOST} experts. Train with num_experts={_MOST} or less.",
)
_IN_ALL = Rule(
    lambda b: all(hasattr(layer.mlp, "expert_bank") for layer in b.transformer_layers),
    "llama.cpp's has experts in every block. Train with mlp_only_layers=[] and "
    "decoder_sparse_step=1.",
)
#: Of Qwen 3's, whose queries and keys are scaled by its root; see `with_norms_of`.
LARGE_ENOUGH = Rule(
    lambda b: b.layer_norm_epsilon >= 1e-9,
    "KerasHub's norms of queries and keys have an epsilon of their own, which a file "
    "cannot say beside a smaller one. Train with layer_norm_epsilon=1e-9 or more.",
)
_GATED = Rule(
    lambda b: all(
        keras.ops.any(layer.mlp.shared_expert_gate_dense.kernel.value)
        for layer in b.transformer_layers
    ),
    "Where the gate of a shared expert is 0, llama.cpp divides by it. Train the gates "
    "first.",
)


def _with_experts(block: Places, mixture: Places) -> Places:
    """A block of a dense family, with a mixture in place of its FFN."""
    dense = {f"ffn_{name}.weight" for name in ("gate", "up", "down")}
    return {**{name: p for name, p in block.items() if name not in dense}, **mixture}


def _qwen_experts(mixture: str) -> Places:
    """The experts of Qwen's: gates and what they gate in one variable."""
    gates = f"{mixture}/experts/expert_feedforward_gate_dense"
    return {
        "ffn_gate_inp.weight": part(
            f"{mixture}/sparse_feedforward_gate_dense/kernel", matrix
        ),
        "ffn_gate_exps.weight": part(gates, first_half(experts)),
        "ffn_up_exps.weight": part(gates, second_half(experts)),
        "ffn_down_exps.weight": part(
            f"{mixture}/experts/expert_feedforward_output_dense", experts
        ),
    }


_MIXTRAL = "mixtral_sparse_moe_block"
_MIXTRAL_BLOCK = _with_experts(
    places.LLAMA,
    {
        **_qwen_experts(_MIXTRAL),
        # Not in one variable.
        "ffn_gate_exps.weight": part(
            f"{_MIXTRAL}/experts/expert_feedforward_gate_dense", experts
        ),
        "ffn_up_exps.weight": part(
            f"{_MIXTRAL}/experts/expert_feedforward_intermediate_dense", experts
        ),
    },
)
_QWEN = "qwen_sparse_moe_block"
# The expert that all tokens go through.
_SHARED = f"{_QWEN}/shared_expert_dense/feedforward"
_QWEN_BLOCK = _with_experts(
    places.QWEN,
    {
        **_qwen_experts(_QWEN),
        "ffn_gate_inp_shexp.weight": part(
            f"{_QWEN}/shared_expert_gate_dense/kernel", flat
        ),
        "ffn_gate_shexp.weight": part(f"{_SHARED}_gate_dense/kernel", matrix),
        "ffn_up_shexp.weight": part(f"{_SHARED}_intermediate_dense/kernel", matrix),
        "ffn_down_shexp.weight": part(f"{_SHARED}_output_dense/kernel", matrix),
    },
)
_QWEN3_BLOCK = _with_experts(places.QWEN3, _qwen_experts("qwen3_sparse_moe_block"))
_GPT_OSS = "sparse_moe_block"


def _pairs(name: str, first: int) -> Places:
    """GPT-OSS's gates or what they gate: every second neuron of a variable."""
    both = f"{_GPT_OSS}/experts/gate_up_proj"
    return {
        f"ffn_{name}_exps.weight": part(both, every_second(experts, first)),
        f"ffn_{name}_exps.bias": part(f"{both}_bias", every_second(as_it_is, first)),
    }


_GPT_OSS_BLOCK = {
    **{
        name: p
        for of in ("query", "key", "value")
        for name, p in with_bias(f"attn_{of[0]}", f"self_attention/{of}", heads).items()
    },
    **with_bias("attn_output", "self_attention/attention_output", from_heads),
    "attn_sinks.weight": part("self_attention/sinks", as_it_is),
    "attn_norm.weight": part("input_layernorm/scale", as_it_is),
    "post_attention_norm.weight": part("post_attention_layernorm/scale", as_it_is),
    **with_bias("ffn_gate_inp", f"{_GPT_OSS}/router/router_dense"),
    **_pairs("gate", 0),
    **_pairs("up", 1),
    "ffn_down_exps.weight": part(f"{_GPT_OSS}/experts/down_proj", experts),
    "ffn_down_exps.bias": part(f"{_GPT_OSS}/experts/down_proj_bias", as_it_is),
}


def _counts(b: Any) -> dict[str, Value]:
    return {"expert_count": b.num_experts, "expert_used_count": b.top_k}


def _mixtral_keys(b: Any) -> dict[str, Value]:
    return {**keys.rotary(b), **_counts(b)}


def _qwen3_keys(b: Any) -> dict[str, Value]:
    return {**_mixtral_keys(b), "expert_feed_forward_length": b.moe_intermediate_dim}


def _qwen_keys(b: Any) -> dict[str, Value]:
    return {
        **_qwen3_keys(b),
        "expert_shared_feed_forward_length": b.shared_expert_intermediate_dim,
    }


def _gpt_oss_keys(b: Any) -> dict[str, Value]:
    """Keys of GPT-OSS: of two blocks, KerasHub's second one has the window."""
    return {
        **keys.rms(b),
        **_counts(b),
        "rope.freq_base": float(b.rope_max_wavelength),
        "expert_feed_forward_length": b.intermediate_dim,
        # KerasHub looks so many tokens back; llama.cpp counts the token itself, too.
        "attention.sliding_window": b.sliding_window + 1,
        "attention.sliding_window_pattern": [i % 2 == 1 for i in range(b.num_layers)],
    }


def _qwen_moe(b: Any) -> GGUFFamily:
    only = "llama.cpp's Qwen 2 MoE leaves the weights of the chosen experts as they are"
    ends = dict(places.ENDS)
    if b.tie_word_embeddings:
        # Which llama.cpp's has no way to say.
        ends["output.weight"] = part("token_embedding/embeddings", as_it_is)
    return GGUFFamily(
        "qwen2moe",
        ends,
        _QWEN_BLOCK,
        _qwen_keys,
        (_COUNT, _IN_ALL, _GATED, has("norm_top_k_prob", False, only)),
        window="sliding_window_size" if b.use_sliding_window_attention else "",
    )


def _qwen3_moe(b: Any) -> GGUFFamily:
    only = "llama.cpp's Qwen 3 MoE makes the weights of the chosen experts add up to 1"
    return GGUFFamily(
        "qwen3moe",
        places.ENDS,
        places.with_norms_of(_QWEN3_BLOCK, b),
        _qwen3_keys,
        (_COUNT, _IN_ALL, LARGE_ENOUGH, has("norm_top_k_prob", True, only)),
        window="sliding_window_size",
    )


_GPT_OSS_RULES = (
    _COUNT,
    has(
        "rope_scaling_factor",
        1.0,
        "llama.cpp rounds the range of YaRN's frequencies, KerasHub does not",
    ),
    Rule(
        lambda b: bool(b.sliding_window) and b.num_layers > 1,
        "llama.cpp's GPT-OSS has a window, which KerasHub's has in every second "
        "block. Train with a number as sliding_window, and 2 blocks or more.",
    ),
    Rule(
        lambda b: (b.head_dim or b.hidden_dim // b.num_query_heads) % 2 == 0,
        "llama.cpp rotates heads of an even size alone. Take an even head_dim.",
    ),
)
#: As `FAMILIES`.
MIXTURES: dict[str, GGUFFamily | Callable[[Any], GGUFFamily]] = {
    "MixtralBackbone": GGUFFamily(
        "llama",
        places.ENDS,
        _MIXTRAL_BLOCK,
        _mixtral_keys,
        (_COUNT,),
        window="sliding_window",
    ),
    "QwenMoeBackbone": _qwen_moe,
    "Qwen3MoeBackbone": _qwen3_moe,
    "GptOssBackbone": GGUFFamily(
        "gpt-oss", places.ENDS, _GPT_OSS_BLOCK, _gpt_oss_keys, _GPT_OSS_RULES
    ),
}
