"""The KerasHub families that llama.cpp computes: one row of data each.

Names, layouts and keys are those of llama.cpp's own converter (`conversion/` beside
`convert_hf_to_gguf.py`, in llama-cpp-python 0.3.36).
"""

import math
from collections.abc import Callable
from typing import Any

import keras

from keras_idea.errors import ExportRefused
from keras_idea.hub.family import Rule, has
from keras_idea.lm.export.gguf import keys, places
from keras_idea.lm.export.gguf.family import GGUFFamily
from keras_idea.lm.export.gguf.layouts import (
    Layout,
    heads_first,
    plus_one,
    scaled,
)
from keras_idea.lm.export.gguf.mixtures import LARGE_ENOUGH, MIXTURES


def family_of(backbone: keras.Model) -> GGUFFamily:
    """The row of a stock KerasHub backbone.

    Raises:
        ExportRefused: if there is none, or llama.cpp would compute something else; why.
    """
    name = type(backbone).__name__
    if name in REFUSED:
        raise ExportRefused(f"{name} has no export to GGUF: {REFUSED[name]}.")
    if name not in FAMILIES:
        raise ExportRefused(
            f"{name} has no export to GGUF; these have one: {', '.join(FAMILIES)}."
        )
    row = FAMILIES[name]
    family = row if isinstance(row, GGUFFamily) else row(backbone)
    for rule in family.rules:
        if not rule.holds(backbone):
            raise ExportRefused(f"This {name} cannot become a GGUF file: {rule.reason}")
    return family


def _query(b: Any, layout: Layout, large_layers: int | None = None) -> Layout:
    """The layout of a Gemma's queries, which llama.cpp scales by a rule of its own.

    It divides them by the root of the size of a head; in models of as many layers as
    the family's largest by that of the width a head.
    """
    per_head = b.hidden_dim // b.num_query_heads
    # The block's, to which KerasHub 0.32 does not hand the backbone's argument on.
    by_head = b.transformer_layers[0].attention.query_head_dim_normalize
    ours = b.head_dim if by_head else per_head
    theirs = per_head if b.num_layers == large_layers else b.head_dim
    return scaled(layout, math.sqrt(theirs / ours))


_ROPE = has(
    "rope_position_scaling_factor",
    1.0,
    "KerasHub 0.32 computes as if it were 1, llama.cpp would not",
)
_EPSILON = has(
    "layer_norm_epsilon", 1e-6, "KerasHub's blocks compute with 1e-6 all the same"
)
_SU = has(
    "rope_scaling_type",
    None,
    "of its two tables of positions llama.cpp takes one by the size of its context, "
    "KerasHub by the length of the text",
)
_CAPS = ("attention_logit_soft_cap", "final_logit_soft_cap")


def _gemma(b: Any) -> GGUFFamily:
    """The row of a GemmaBackbone: Gemma 2 is the same class."""
    second = bool(b.use_post_ffw_norm)
    query = _query(b, heads_first, large_layers=46 if second else None)
    query_place = {"attn_q.weight": places.part("attention/query/kernel", query)}
    block = {**places.GEMMA, **query_place}
    only = f"llama.cpp's {'Gemma 2' if second else 'Gemma'} has no other"
    switches = (
        has("use_post_attention_norm", second, only),
        has("use_sliding_window_attention", second, only),
    )
    if second:
        block |= places.GEMMA_POST
        rules = (_EPSILON, *switches, *map(_is_set, _CAPS))
        return GGUFFamily("gemma2", places.GEMMA_ENDS, block, keys.gemma2, rules)
    rules = (_EPSILON, *(has(name, None, only) for name in _CAPS), *switches)
    return GGUFFamily("gemma", places.GEMMA_ENDS, block, keys.rms, rules)


def _is_set(name: str) -> Rule:
    return Rule(
        lambda b: bool(getattr(b, name)),
        f"llama.cpp's Gemma 2 caps its logits. Train with a number as {name}.",
    )


def _gemma3(b: Any) -> GGUFFamily:
    only = "llama.cpp's Gemma 3 has no other"
    rules = (
        _EPSILON,
        has("use_query_key_norm", True, only),
        has("use_post_ffw_norm", True, only),
        has("use_post_attention_norm", True, only),
        has("attention_logit_soft_cap", None, only),
        has("use_bidirectional_attention", False, only),
        has("is_embedding_model", False, only),
        has("local_rope_scaling_factor", 1.0, only),
    )
    block = {
        **places.GEMMA,
        **places.GEMMA_POST,
        # Behind the norm of the queries: there a factor on the queries is lost.
        "attn_q_norm.weight": places.part(
            "attention/query_norm/scale", _query(b, plus_one, large_layers=62)
        ),
        "attn_k_norm.weight": places.part("attention/key_norm/scale", plus_one),
    }
    return GGUFFamily("gemma3", places.GEMMA_ENDS, block, keys.gemma3, rules)


def _qwen(b: Any) -> GGUFFamily:
    window = "sliding_window_size" if b.use_sliding_window_attention else ""
    return GGUFFamily("qwen2", places.ENDS, places.QWEN, keys.rotary, window=window)


def _qwen3(b: Any) -> GGUFFamily:
    block = places.with_norms_of(places.QWEN3, b)
    rules, window = (LARGE_ENOUGH,), "sliding_window_size"
    return GGUFFamily("qwen3", places.ENDS, block, keys.rotary, rules, window)


def _smollm3(b: Any) -> GGUFFamily:
    only = "llama.cpp's SmolLM3 has no other"
    rules = (
        has("attention_bias", False, only),
        has("mlp_bias", False, only),
        has("partial_rotary_factor", 1.0, only),
        Rule(
            lambda b: all(
                b.rope_layer_enabled_list[i : i + 1] in ([(i + 1) % 4 != 0], [])
                for i in range(b.num_layers)
            ),
            "llama.cpp leaves the positions out in every fourth layer and no other. "
            "Train with rope_layer_enabled_list=[True, True, True, False, ...].",
        ),
    )
    return GGUFFamily(
        "smollm3",
        places.ENDS,
        places.smollm3(b.num_attention_heads, b.num_key_value_heads),
        keys.smollm3,
        rules,
        follows=("rotary_emb/inv_freq",),
    )


_LLAMA = GGUFFamily("llama", places.ENDS, places.LLAMA, keys.rotary, (_ROPE,))
#: Class of the backbones -> row, or function of a backbone that returns it.
FAMILIES: dict[str, GGUFFamily | Callable[[Any], GGUFFamily]] = {
    "LlamaBackbone": _LLAMA,
    "Llama3Backbone": _LLAMA,
    "MistralBackbone": GGUFFamily(
        "llama", places.ENDS, places.LLAMA, keys.rotary, window="sliding_window"
    ),
    "QwenBackbone": _qwen,
    "Qwen3Backbone": _qwen3,
    "Phi3Backbone": GGUFFamily("phi3", places.ENDS, places.PHI3, keys.rotary, (_SU,)),
    "GemmaBackbone": _gemma,
    "Gemma3Backbone": _gemma3,
    "GPT2Backbone": GGUFFamily("gpt2", places.GPT2_ENDS, places.GPT2, keys.gpt2),
    "GPTNeoXBackbone": GGUFFamily(
        "gptneox", places.GPT_NEOX_ENDS, places.GPT_NEOX, keys.gpt_neox
    ),
    "BloomBackbone": GGUFFamily(
        "bloom", places.BLOOM_ENDS, places.BLOOM, keys.layer_norm
    ),
    "SmolLM3Backbone": _smollm3,
    **MIXTURES,
}
_NOT_YET = "llama.cpp knows it, but nobody has written down where its weights go"
#: Class of the backbones -> why there is no row.
REFUSED = {
    "OPTBackbone": "llama.cpp does not know it",
    "FalconBackbone": "KerasHub's tells positions by ALiBi, llama.cpp's by rotation",
    **{
        f"{prefix}Backbone": _NOT_YET
        for prefix in ("Qwen3_5", "Gemma4", "Gemma3n", "Qwen3_5Moe")
    },
}
