"""The config of a Hugging Face checkpoint, and what KerasHub 0.32 loses of it."""

import copy
import math
import os
from collections.abc import Mapping
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.hub.hf.rules import (
    Config,
    Rules,
    rotary_parts,
    rotary_type,
    rules_of,
)
from keras_idea.keras_private.hub_tokenizers import keys_read

# What changes no number that a model computes, or is compared in another place: by
# `check_rotary`, or by the shapes of the weights.
_HARMLESS = frozenset(
    "architectures attn_implementation auto_map bos_token_id eos_token_id pad_token_id "
    "unk_token_id sep_token_id decoder_start_token_id torch_dtype dtype id2label "
    "label2id initializer_range use_cache transformers_version model_type "
    "max_position_embeddings attention_dropout hidden_dropout_prob resid_pdrop "
    "embd_pdrop attn_pdrop attention_probs_dropout_prob classifier_dropout dropout "
    "classifier_dropout_prob qa_dropout seq_classif_dropout "
    "output_attentions output_hidden_states return_dict pretraining_tp problem_type "
    "chunk_size_feed_forward task_specific_params gradient_checkpointing "
    "summary_type summary_use_proj summary_activation summary_proj_to_labels "
    "summary_first_dropout name_or_path _name_or_path reorder_and_upcast_attn "
    "router_aux_loss_coef output_router_logits router_jitter_noise "
    "rope_parameters rope_scaling rope_theta max_window_layers sliding_window_pattern "
    "_sliding_window_pattern no_rope_layer_interval type_vocab_size "
    "n_ctx n_positions".split()
)
_ALIASES = {"gelu_new": "gelu_pytorch_tanh", "swish": "silu"}
# What one part of the rotary positions may say.
_ROTARY_KEYS = frozenset(
    "rope_theta rope_type type factor low_freq_factor high_freq_factor "
    "original_max_position_embeddings".split()
)


def read_config(folder: str | os.PathLike) -> Any:
    """The config of a folder as transformers reads it: a `PretrainedConfig`."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(folder)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise LoadRefused(
            f"transformers cannot read the config of {str(folder)!r}: {reason} Give a "
            "folder as `save_pretrained` of transformers writes it."
        ) from error


def as_dict(config: Any) -> Config:
    """All keys of a config, with their defaults."""
    hf_config: Config = config.to_dict()
    # What transformers 5 leaves out where it is the default.
    hf_config.setdefault(
        "tie_word_embeddings", getattr(config, "tie_word_embeddings", True)
    )
    if hf_config["model_type"] == "qwen3_moe":  # KerasHub's name of it
        hf_config.setdefault("num_experts", hf_config.pop("num_local_experts", None))
    return hf_config


def staged_config(hf_config: Config) -> Config:
    """A config in which KerasHub's converter finds what it would lose."""
    hf_config = copy.deepcopy(hf_config)
    rope = rotary_parts(hf_config).get("", {})
    if hf_config["model_type"] == "llama":
        # It reads the scaling from where transformers 4 had it.
        hf_config.pop("rope_scaling", None)
        if rotary_type(rope) == "llama3":
            hf_config["rope_scaling"] = {**rope, "rope_type": "llama3"}
    if "rope_theta" in rope:
        hf_config.setdefault("rope_theta", rope["rope_theta"])
    return hf_config


def backbone_arguments(hf_config: Mapping[str, Any]) -> Config:
    """Arguments of the backbone that KerasHub's converter leaves at their defaults."""
    return rules_of(hf_config).arguments(hf_config)


def check_config(config: Any) -> None:
    """Refuses what KerasHub's class replaces by something else.

    Raises:
        LoadRefused: the message has the keys, and their values.
    """
    hf_config = as_dict(config)
    if hf_config.get("quantization_config"):
        raise LoadRefused(
            "Its weights are quantized, which KerasHub's converters cannot read. "
            f"Received: quantization_config={hf_config['quantization_config']!r}. "
            "Give the checkpoint that was quantized."
        )
    if hf_config.get("is_encoder_decoder") or not hf_config.get("vocab_size"):
        raise LoadRefused(
            "Only language models and encoders of text are loaded. Received: "
            f"model_type={hf_config['model_type']!r}. Give such a checkpoint, or "
            "load it with `keras_hub` and compare it yourself."
        )
    lost = not_taken_over(config)
    _check_rotary(hf_config, rules_of(hf_config))
    if lost:
        raise LoadRefused(
            "KerasHub 0.32 has no model of this family with such a config: it would "
            f"compute something else. Received: {', '.join(lost)}. Give another "
            "checkpoint."
        )


def _check_rotary(hf_config: Config, rules: Rules) -> None:
    for kind, part in rotary_parts(hf_config).items():
        scaled = rotary_type(part)
        if scaled not in rules.rotary:
            raise LoadRefused(
                "KerasHub 0.32 cannot compute rotary positions of this kind. Received:"
                f" model_type={hf_config['model_type']!r}, rope_type={scaled!r}. "
                "Give a "
                f"checkpoint with rope_type={' or '.join(map(repr, rules.rotary))}."
            )
        others = {k: v for k, v in part.items() if k not in _ROTARY_KEYS}
        if others.pop("partial_rotary_factor", None) not in (None, 1):
            others["partial_rotary_factor"] = part["partial_rotary_factor"]
        wavelength = rules.wavelengths.get(kind, part.get("rope_theta"))
        if not _same(part.get("rope_theta", wavelength), wavelength):
            others["rope_theta"] = part["rope_theta"]
        others = {k: v for k, v in others.items() if v is not None}
        if others:
            raise LoadRefused(
                "KerasHub 0.32 computes other rotary positions in this family. "
                f"Received: {_said(others)}. Give another checkpoint."
            )


def not_taken_over(config: Any) -> list[str]:
    """Keys of a config, with their values, that KerasHub does not compute with.

    A key counts if the config's class knows it, KerasHub's converter does not read it
    or its class replaces it, and it is at another value than the class's default, with
    which KerasHub was compared.
    """
    hf_config, usual = as_dict(config), as_dict(type(config)())
    rules = rules_of(hf_config)
    heads = hf_config.get("num_attention_heads")
    if heads and hf_config.get("head_dim") == hf_config.get("hidden_size", 0) // heads:
        usual["head_dim"] = hf_config["head_dim"]  # follows from the others
    if set(hf_config.get("layer_types") or ()) <= {"full_attention"}:
        usual["layer_types"] = hf_config.get("layer_types")
    known = _read(hf_config) | _HARMLESS | set(rules.takes)
    if not is_causal(config):
        known = known | {"tie_word_embeddings"}
    fixed = dict(rules.fixed(hf_config))
    if _alias(hf_config.get(rules.approximated)) == "gelu_pytorch_tanh":
        fixed[rules.approximated] = hf_config[rules.approximated]
    wanted = {k: v for k, v in usual.items() if k not in known} | fixed
    left = {
        k: hf_config[k]
        for k in wanted
        if k in hf_config and not _same(hf_config[k], wanted[k])
    }
    return [_said({key: left[key]}) for key in sorted(left)]


def _read(hf_config: Config) -> set[str]:
    try:
        return keys_read(staged_config(hf_config))
    except Exception as error:  # no such converter, or a config that it cannot read
        raise LoadRefused(
            f"KerasHub cannot convert this checkpoint: {' '.join(str(error).split())} "
            f"Received: model_type={hf_config['model_type']!r}. Give a checkpoint of "
            "another family; docs/families.md lists those that can be loaded."
        ) from error


def is_causal(config: Any) -> bool:
    """Whether a checkpoint is a language model, by its architecture."""
    names = getattr(config, "architectures", None)
    if not names:  # not said: what KerasHub takes its family for
        return config.model_type in LANGUAGE_MODELS
    return any(end in names[0] for end in ("ForCausalLM", "LMHeadModel"))


#: Families that KerasHub has as language models.
LANGUAGE_MODELS = frozenset(
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text "
    "gpt2 gpt_oss smollm3".split()
)


def _said(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in values.items())


def _alias(value: Any) -> Any:
    return _ALIASES.get(value, value) if isinstance(value, str) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        # A GGUF file has them in float32.
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)
    return bool(_alias(a) == _alias(b))


#: Tokens of the longest sequence that is compared.
LONGEST = 1100
# Families whose sliding window was compared with transformers', at small windows.
_WINDOWS_COMPARED = ("mistral", "mixtral", "gemma2", "gemma3_text")


def compared_length(hf_config: Mapping[str, Any], usual: int) -> int:
    """Tokens to compare on: beyond the sliding window, if a model has one.

    Raises:
        LoadRefused: if that would be too long, and KerasHub is not known to compute it.
    """
    most = (
        hf_config.get("max_position_embeddings")
        or hf_config.get("n_positions")
        or LONGEST
    )
    if "roberta" in hf_config["model_type"]:  # its positions begin behind the padding's
        most -= hf_config["pad_token_id"] + 1
    usual = min(usual, most)
    window = hf_config.get("sliding_window")
    if not window or hf_config.get("use_sliding_window") is False or window >= most:
        return usual
    if window + usual <= LONGEST:
        return min(window + usual, most)
    if hf_config["model_type"] not in _WINDOWS_COMPARED:
        raise LoadRefused(
            "Whether KerasHub computes this sliding window could be seen only on longer"
            f" text than is compared. Received: sliding_window={window}. Give a "
            "checkpoint without a sliding window."
        )
    return usual
