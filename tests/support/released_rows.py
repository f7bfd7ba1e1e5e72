"""Tiny models of transformers with unusual configs: exact, or refused and why."""

import dataclasses

VOCABULARY, LENGTH = 96, 160

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
}
_SIX = {**_SIZES, "num_hidden_layers": 6}
_GEMMA = {"head_dim": 6, "tie_word_embeddings": True}
_GEMMA2 = {**_GEMMA, "query_pre_attn_scalar": 6, "sliding_window": 8}
_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": LENGTH,
}
_ENCODER = {k: v for k, v in _SIZES.items() if k != "num_key_value_heads"}
_DISTIL = {
    "vocab_size": VOCABULARY,
    "dim": 24,
    "hidden_dim": 40,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": LENGTH,
}
_MIXTURE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 777.0,
}


@dataclasses.dataclass(frozen=True)
class Released:
    """A tiny model of transformers.

    Attributes:
        config: str, the class of its config without "Config".
        sizes: dict, arguments of the config.
        lost: str, a regular expression of what a refusal names; "": it is exact.
        architecture: str, what of transformers it is: "ForCausalLM", "Model" and so on.
    """

    config: str
    sizes: dict
    lost: str = ""
    architecture: str = "ForCausalLM"


def _rows(config, sizes, rows, architecture="ForCausalLM"):
    return {
        f"{config.lower()} {name}".strip(): Released(
            config, {**sizes, **told}, lost, architecture
        )
        for name, (told, lost) in rows.items()
    }


def _rope(kind, theta=1e4, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


_YARN = _rope("yarn", factor=3.0, original_max_position_embeddings=16)
_WINDOWED = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
_ALL_WINDOWED = {**_WINDOWED, "max_window_layers": 0}
_LINEAR = _rope("linear", factor=3.0)

CAUSAL = {
    **_rows(
        "Llama",
        _SIZES,
        {
            "": ({}, ""),
            "epsilon": ({"rms_norm_eps": 0.03}, ""),
            "epsilon 1e-5": ({"rms_norm_eps": 1e-5}, ""),
            "epsilon 2e-5": ({"rms_norm_eps": 2e-5}, ""),
            "theta": (_rope("default", 321.0), ""),
            "theta 10500": (_rope("default", 10500.0), ""),
            "llama3": ({"rope_parameters": _LLAMA3}, ""),
            "tied": ({"tie_word_embeddings": True}, ""),
            "linear": (_LINEAR, "rope_type='linear'"),
            "linear 1.05": (_rope("linear", factor=1.05), "rope_type='linear'"),
            "dynamic": (_rope("dynamic", factor=3.0), "rope_type='dynamic'"),
            "yarn": (_YARN, "rope_type='yarn'"),
            "head size": ({"head_dim": 10}, "head_dim=10"),
            "biases": ({"attention_bias": True}, "attention_bias=True"),
            "FFN biases": ({"mlp_bias": True}, "mlp_bias=True"),
            "gelu": ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        },
    ),
    **_rows(
        "Mistral",
        {**_SIZES, "sliding_window": None},
        {
            "": ({"rms_norm_eps": 0.03, **_rope("default", 321.0)}, ""),
            "window": ({"sliding_window": 8}, ""),
            "window at its length": ({"sliding_window": LENGTH - 1}, ""),
            "head size": ({"head_dim": 10}, ""),
            "linear": (_LINEAR, ""),
            "linear 1.05": (_rope("linear", factor=1.05), ""),
            "tied": ({"tie_word_embeddings": True}, "tie_word_embeddings=True"),
            "llama3": ({"rope_parameters": _LLAMA3}, "rope_type='llama3'"),
            "yarn": (_YARN, "rope_type='yarn'"),
        },
    ),
    **_rows(
        "Qwen2",
        _SIZES,
        {
            "": ({}, ""),
            "tied": (
                {
                    "rms_norm_eps": 0.03,
                    "tie_word_embeddings": True,
                    **_rope("default", 321.0),
                },
                "",
            ),
            "linear": (_LINEAR, ""),
            "window": (_WINDOWED, "use_sliding_window=True"),
            "window in all": (_ALL_WINDOWED, "use_sliding_window=True"),
            "llama3": ({"rope_parameters": _LLAMA3}, "rope_type='llama3'"),
        },
    ),
    **_rows(
        "Qwen3",
        {**_SIZES, "head_dim": 8},
        {
            "": ({}, ""),
            "tied": ({"tie_word_embeddings": True}, ""),
            "epsilon": ({"rms_norm_eps": 0.03}, ""),
            "epsilon 1e-5": ({"rms_norm_eps": 1e-5}, ""),
            "theta, head size": ({"head_dim": 10, **_rope("default", 321.0)}, ""),
            "linear": (_LINEAR, ""),
            "window": (_WINDOWED, "use_sliding_window=True"),
            "biases": ({"attention_bias": True}, "attention_bias=True"),
            "yarn": (_YARN, "rope_type='yarn'"),
        },
    ),
    **_rows(
        "Gemma",
        {**_SIZES, **_GEMMA},
        {
            "": ({}, ""),
            "one key and value": ({"num_key_value_heads": 1, "head_dim": 10}, ""),
            "legacy activation": ({"hidden_act": "gelu"}, ""),
            "epsilon": ({"rms_norm_eps": 2e-6}, "rms_norm_eps=2e-06"),
            "theta": (_rope("default", 10500.0), "rope_theta=10500.0"),
            "untied": ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
            "relu": ({"hidden_act": "relu"}, "hidden_act='relu'"),
            "both ways": (
                {"use_bidirectional_attention": True},
                "use_bidirectional_attention=True",
            ),
        },
    ),
    **_rows(
        "Gemma2",
        {**_SIZES, **_GEMMA2},
        {
            "": ({}, ""),
            "no caps": (
                {"final_logit_softcapping": None, "attn_logit_softcapping": None},
                "",
            ),
            "caps": (
                {"final_logit_softcapping": 0.3, "attn_logit_softcapping": 0.2},
                "",
            ),
            "by width": ({"head_dim": 8}, ""),
            "scalar": ({"query_pre_attn_scalar": 11}, ""),
            "epsilon": ({"rms_norm_eps": 1e-5}, "rms_norm_eps=1e-05"),
            "pattern": ({"layer_types": ["full_attention"] * 3}, "layer_types="),
            "theta": (_rope("default", 321.0), "rope_theta=321.0"),
            "tanh": ({"hidden_activation": "gelu"}, "hidden_activation='gelu'"),
        },
    ),
    **_rows(
        "Gemma3Text",
        {**_SIX, **_GEMMA2},
        {
            "": ({}, ""),
            "factor": (
                {
                    "rope_parameters": {
                        "sliding_attention": {"rope_theta": 1e4},
                        "full_attention": {
                            "rope_type": "linear",
                            "factor": 8.0,
                            "rope_theta": 1e6,
                        },
                    }
                },
                "",
            ),
            "theta": (
                {
                    "rope_parameters": {
                        "sliding_attention": {"rope_theta": 1e4},
                        "full_attention": {"rope_theta": 321.0},
                    }
                },
                "rope_theta=321.0",
            ),
            "epsilon": ({"rms_norm_eps": 1e-5}, "rms_norm_eps=1e-05"),
            "scalar": ({"query_pre_attn_scalar": 24}, ""),
            "pattern": (
                {"layer_types": ["sliding_attention", "full_attention"] * 3},
                "layer_types=",
            ),
            "untied": ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
            # Too high to be seen in logits.
            "cap": ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
            "last cap": (
                {"final_logit_softcapping": 30.0},
                "final_logit_softcapping=30.0",
            ),
        },
    ),
    **_rows(
        "GPT2",
        _GPT2,
        {
            "": ({}, ""),
            "inner": ({"n_inner": 40}, ""),
            "epsilon": ({"layer_norm_epsilon": 2e-5}, "layer_norm_epsilon=2e-05"),
            "relu": ({"activation_function": "relu"}, "activation_function='relu'"),
            "gelu": ({"activation_function": "gelu"}, "activation_function='gelu'"),
            "untied": ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
            "scaled": (
                {"scale_attn_by_inverse_layer_idx": True},
                "scale_attn_by_inverse_layer_idx=True",
            ),
            "unscaled": ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        },
        "LMHeadModel",
    ),
    **_rows(
        "SmolLM3",
        {**_SIZES, "pad_token_id": 0},
        {
            "": (
                {
                    "rms_norm_eps": 0.03,
                    "no_rope_layer_interval": 2,
                    "tie_word_embeddings": True,
                },
                "",
            ),
            "theta": (_rope("default", 321.0), ""),
            "untied": ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
            "biases": ({"attention_bias": True}, "attention_bias=True"),
            "FFN biases": ({"mlp_bias": True}, "mlp_bias=True"),
            "linear": (_LINEAR, "rope_type='linear'"),
            "window": (
                {"use_sliding_window": True, "sliding_window": 8},
                "use_sliding_window=True",
            ),
        },
    ),
    **_rows(
        "Mixtral",
        {**_SIZES, "num_local_experts": 4, "num_experts_per_tok": 2},
        {
            "": ({"rms_norm_eps": 0.03}, ""),
            "window": ({"sliding_window": 8}, ""),
            "linear": (_LINEAR, ""),
            "tied": ({"tie_word_embeddings": True}, "tie_word_embeddings=True"),
            "head size": ({"head_dim": 10}, "head_dim=10"),
        },
    ),
    **_rows(
        "Qwen2Moe",
        {**_SIZES, **_MIXTURE, "shared_expert_intermediate_size": 20},
        {
            "": ({"rms_norm_eps": 0.03}, ""),
            "normalized": ({"norm_topk_prob": True}, ""),
            "linear": (_LINEAR, ""),
            "dense": ({"mlp_only_layers": [0]}, "mlp_only_layers="),
            "biases": ({"qkv_bias": False}, "qkv_bias=False"),
            "sparse": ({"decoder_sparse_step": 2}, "decoder_sparse_step=2"),
            "tied": ({"tie_word_embeddings": True}, "tie_word_embeddings=True"),
        },
    ),
    **_rows(
        "Qwen3Moe",
        {**_SIZES, **_MIXTURE, "head_dim": 8},
        {
            "": ({"rms_norm_eps": 0.03}, ""),
            "normalized": ({"norm_topk_prob": True}, ""),
            "tied": ({"tie_word_embeddings": True}, ""),
            "dense": ({"mlp_only_layers": [0]}, "mlp_only_layers="),
        },
    ),
}
#: Of other families, or of no text: refused, never an error of another kind.
REFUSED = {
    "gemma4": Released(
        "Gemma4Text",
        {
            **_SIX,
            "head_dim": 6,
            "sliding_window": 8,
            "vocab_size_per_layer_input": VOCABULARY,
        },
        "rope_type='proportional'",
    ),
    "qwen3.5": Released(
        "Qwen3_5Text",
        {**_SIZES, "num_hidden_layers": 4, "head_dim": 8},
        "no converter.*qwen3_5_text",
    ),
    "llama without its head": Released("Llama", _SIZES, "lm_head", "Model"),
    "gptoss": Released(
        "GptOss",
        {**_SIZES, "num_hidden_layers": 2, "head_dim": 8, "num_local_experts": 4},
        "rope_type='yarn'",
    ),
    "phi": Released("Phi", {**_SIZES, "num_key_value_heads": 4}, "no converter.*phi"),
    "bart": Released(
        "Bart",
        {
            "vocab_size": VOCABULARY,
            "d_model": 24,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 40,
            "decoder_ffn_dim": 40,
        },
        "model_type='bart'",
        "Model",
    ),
}
_MASKED, _BARE = "ForMaskedLM", "Model"
ENCODERS = {
    **_rows(
        "Bert",
        _ENCODER,
        {
            "": ({}, ""),
            "tanh": ({"hidden_act": "gelu_new"}, ""),
            "epsilon": ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05"),
            "relu": ({"hidden_act": "relu"}, "hidden_act='relu'"),
            "decoder": ({"is_decoder": True}, "is_decoder=True"),
            "segments": ({"type_vocab_size": 3}, "shape"),
        },
        _BARE,
    ),
    **_rows("Bert", _ENCODER, {"masked": ({}, "")}, _MASKED),
    **_rows(
        "Roberta",
        {**_ENCODER, "layer_norm_eps": 1e-5},
        {
            "": ({}, ""),
            "one segment": ({"type_vocab_size": 1}, ""),
            "epsilon": ({"layer_norm_eps": 1e-12}, "layer_norm_eps=1e-12"),
            "relu": ({"hidden_act": "relu"}, "hidden_act='relu'"),
        },
        _BARE,
    ),
    **_rows(
        "Roberta", {**_ENCODER, "layer_norm_eps": 1e-5}, {"masked": ({}, "")}, _MASKED
    ),
    **_rows("XLMRoberta", {**_ENCODER, "layer_norm_eps": 1e-5}, {"": ({}, "")}, _BARE),
    **_rows(
        "XLMRoberta",
        {**_ENCODER, "layer_norm_eps": 1e-5},
        {"masked": ({}, "")},
        _MASKED,
    ),
    **_rows(
        "DistilBert",
        _DISTIL,
        {"": ({}, ""), "relu": ({"activation": "relu"}, "activation='relu'")},
        _BARE,
    ),
    **_rows("DistilBert", _DISTIL, {"masked": ({}, "")}, _MASKED),
    **_rows("Albert", {**_ENCODER, "embedding_size": 12}, {"": ({}, "")}, _BARE),
    **_rows(
        "Albert", {**_ENCODER, "embedding_size": 12}, {"masked": ({}, "")}, _MASKED
    ),
    **_rows(
        "Albert",
        {**_ENCODER, "embedding_size": 12},
        {"gelu": ({"hidden_act": "gelu"}, "hidden_act='gelu'")},
        _BARE,
    ),
}
_IMAGE = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "image_size": 32,
    "patch_size": 8,
}
#: Image models.
IMAGES = {
    "vit": Released("ViT", {**_IMAGE}, "", _BARE),
    "vit classifier": Released(
        "ViT",
        {**_IMAGE, "num_labels": 3},
        "",
        "ForImageClassification",
    ),
    "deit": Released("DeiT", {**_IMAGE}, "", _BARE),
    "dinov2": Released("Dinov2", {**_IMAGE, "mlp_ratio": 2}, "", _BARE),
    "swin": Released(
        "Swin",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 24,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
            "mlp_ratio": 2.0,
        },
        "",
        _BARE,
    ),
}
ALL = {**CAUSAL, **REFUSED, **ENCODERS, **IMAGES}
