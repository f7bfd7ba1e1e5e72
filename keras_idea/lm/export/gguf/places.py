"""Which of KerasHub's variables make which of llama.cpp's tensors.

Of each family a dict: a tensor's name -> its parts. In a block's, the names have
"blk.0." before them in the file, and the paths the block's name.
"""

import math
from typing import Any

from keras_idea.keras_private.layers import walk
from keras_idea.lm.export.gguf.layouts import (
    Layout,
    Part,
    Places,
    as_it_is,
    flat,
    from_heads,
    fused,
    heads,
    heads_first,
    matrix,
    paired,
    plus_one,
    scaled,
)


def part(path: str, layout: Layout) -> tuple[Part, ...]:
    """A tensor of one variable."""
    return ((path, layout),)


_EMBEDDING = {"token_embd.weight": part("token_embedding/embeddings", as_it_is)}
ENDS = {
    **_EMBEDDING,
    # Not there if it is tied.
    "output.weight": part("token_embedding/reverse_embeddings", matrix),
    "output_norm.weight": part("sequence_output_layernorm/scale", as_it_is),
}
LLAMA = {
    "attn_q.weight": part("self_attention/query/kernel", paired),
    "attn_k.weight": part("self_attention/key/kernel", paired),
    "attn_v.weight": part("self_attention/value/kernel", heads),
    "attn_output.weight": part("self_attention/attention_output/kernel", from_heads),
    "attn_norm.weight": part("self_attention_layernorm/scale", as_it_is),
    "ffn_norm.weight": part("feedforward_layernorm/scale", as_it_is),
    "ffn_gate.weight": part("feedforward_gate_dense/kernel", matrix),
    "ffn_up.weight": part("feedforward_intermediate_dense/kernel", matrix),
    "ffn_down.weight": part("feedforward_output_dense/kernel", matrix),
}
_HALVES = {
    **LLAMA,
    "attn_q.weight": part("self_attention/query/kernel", heads),
    "attn_k.weight": part("self_attention/key/kernel", heads),
}


def smollm3(num_heads: int, num_key_value_heads: int) -> Places:
    """A block of SmolLM3, whose queries and keys do not lie in heads."""

    def in_heads(count: int) -> Layout:
        return lambda kernel: paired(kernel.reshape(len(kernel), count, -1))

    return {
        "attn_q.weight": part("self_attn/q_proj/kernel", in_heads(num_heads)),
        "attn_k.weight": part("self_attn/k_proj/kernel", in_heads(num_key_value_heads)),
        "attn_v.weight": part("self_attn/v_proj/kernel", matrix),
        "attn_output.weight": part("o_proj/kernel", from_heads),
        "attn_norm.weight": part("input_layernorm/scale", as_it_is),
        "ffn_norm.weight": part("post_attention_layernorm/scale", as_it_is),
        "ffn_gate.weight": part("mlp/gate_proj/kernel", matrix),
        "ffn_up.weight": part("mlp/up_proj/kernel", matrix),
        "ffn_down.weight": part("mlp/down_proj/kernel", matrix),
    }


QWEN = {
    **_HALVES,
    "attn_q.bias": part("self_attention/query/bias", flat),
    "attn_k.bias": part("self_attention/key/bias", flat),
    "attn_v.bias": part("self_attention/value/bias", flat),
}
QWEN3 = {
    **_HALVES,
    "attn_q_norm.weight": part("self_attention/query_dense_layernorm/scale", as_it_is),
    "attn_k_norm.weight": part("self_attention/key_dense_layernorm/scale", as_it_is),
}


def with_norms_of(block: Places, b: Any) -> Places:
    """A block of Qwen 3, whose norms of queries and keys have a fixed epsilon.

    KerasHub 0.32 does not hand the backbone's epsilon on to them; llama.cpp has one
    epsilon for all norms. In x / sqrt(mean(x^2) + e) a factor s on x has the effect of
    e / s^2 in place of e, so the matrices before these norms are multiplied by s.
    """
    layers = walk(b.transformer_layers[0])
    norm: Any = next(part for part in layers if part.name == "query_dense_layernorm")
    factor = math.sqrt(b.layer_norm_epsilon / norm.epsilon)
    rescaled = {
        name: tuple((path, scaled(layout, factor)) for path, layout in block[name])
        for name in ("attn_q.weight", "attn_k.weight")
    }
    return {**block, **rescaled}


PHI3 = {
    "attn_qkv.weight": tuple(
        (f"attention/{name}/kernel", heads) for name in ("query", "key", "value")
    ),
    "attn_output.weight": part("attention/attention_output/kernel", from_heads),
    "attn_norm.weight": part("pre_attention_layernorm/scale", as_it_is),
    "ffn_norm.weight": part("post_attention_layernorm/scale", as_it_is),
    # The activated half comes first.
    "ffn_up.weight": (
        ("feedforward_gate_dense/kernel", matrix),
        ("feedforward_intermediate_dense/kernel", matrix),
    ),
    "ffn_down.weight": part("feedforward_output_dense/kernel", matrix),
}


def with_bias(name: str, path: str, kernel: Layout = matrix) -> Places:
    """The tensors `name`.weight and `name`.bias of a matrix and its bias at `path`."""
    return {
        f"{name}.weight": part(f"{path}/kernel", kernel),
        f"{name}.bias": part(f"{path}/bias", flat),
    }


def _layer_norm(name: str, path: str) -> Places:
    return {
        f"{name}.weight": part(f"{path}/gamma", as_it_is),
        f"{name}.bias": part(f"{path}/beta", as_it_is),
    }


def _three(*paths: str) -> Places:
    """Queries, keys and values, one above the other."""
    return {
        "attn_qkv.weight": tuple((f"{path}/kernel", heads) for path in paths),
        "attn_qkv.bias": tuple((f"{path}/bias", flat) for path in paths),
    }


_LAYER_NORMS = {
    **_layer_norm("attn_norm", "self_attention_layer_norm"),
    **_layer_norm("ffn_norm", "feedforward_layer_norm"),
    **with_bias("ffn_up", "feedforward_intermediate_dense"),
    **with_bias("ffn_down", "feedforward_output_dense"),
}
GPT2 = {
    **_three(*(f"self_attention/{name}" for name in ("query", "key", "value"))),
    **with_bias("attn_output", "self_attention/attention_output", from_heads),
    **_LAYER_NORMS,
}
GPT2_ENDS = {
    **_EMBEDDING,
    "position_embd.weight": part("position_embedding/embeddings", as_it_is),
    **_layer_norm("output_norm", "layer_norm"),
}
GPT_NEOX = {
    **with_bias("attn_output", "self_attention/attention_output"),
    "attn_qkv.weight": part("self_attention/query_key_value/kernel", fused),
    "attn_qkv.bias": part("self_attention/query_key_value/bias", fused),
    **_LAYER_NORMS,
}
GPT_NEOX_ENDS = {
    **_EMBEDDING,
    # Tied in KerasHub, which llama.cpp has no way to say.
    "output.weight": part("token_embedding/embeddings", as_it_is),
    **_layer_norm("output_norm", "layer_norm"),
}
BLOOM = {
    **_three(*(f"self_attention/{name}_dense" for name in ("query", "key", "value"))),
    **with_bias("attn_output", "self_attention/output_dense"),
    **_layer_norm("attn_norm", "pre_attention_layernorm"),
    **_layer_norm("ffn_norm", "post_attention_layernorm"),
    **with_bias("ffn_up", "mlp_intermediate_dense"),
    **with_bias("ffn_down", "mlp_output_dense"),
}
BLOOM_ENDS = {
    **_EMBEDDING,
    **_layer_norm("token_embd_norm", "embedding_layernorm"),
    **_layer_norm("output_norm", "final_layernorm"),
}
GEMMA_ENDS = {
    **_EMBEDDING,
    "output_norm.weight": part("final_normalization/scale", plus_one),
}
GEMMA = {
    "attn_q.weight": part("attention/query/kernel", heads_first),
    "attn_k.weight": part("attention/key/kernel", heads_first),
    "attn_v.weight": part("attention/value/kernel", heads_first),
    "attn_output.weight": part("attention/attention_output/kernel", from_heads),
    "attn_norm.weight": part("pre_attention_norm/scale", plus_one),
    "ffn_norm.weight": part("pre_ffw_norm/scale", plus_one),
    "ffn_gate.weight": part("ffw_gating/kernel", matrix),
    "ffn_up.weight": part("ffw_gating_2/kernel", matrix),
    "ffn_down.weight": part("ffw_linear/kernel", matrix),
}
GEMMA_POST = {
    "post_attention_norm.weight": part("post_attention_norm/scale", plus_one),
    "post_ffw_norm.weight": part("post_ffw_norm/scale", plus_one),
}
