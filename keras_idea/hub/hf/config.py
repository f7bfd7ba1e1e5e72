"""The config of a Hugging Face checkpoint: what KerasHub 0.32 loses of it, and rules.

Each rule that mends something has a test that fails once KerasHub mends it itself.
"""

import copy
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from keras_idea.errors import LoadRefused
from keras_idea.keras_private.hub_tokenizers import keys_read

Config = dict[str, Any]

# Rotary positions beyond the first: of these types KerasHub's arguments say all.
_ROTARY_TYPES = ("default", "linear", "llama3")
# What changes no number that a model computes, or is asked for in another place.
_HARMLESS = frozenset(
    "architectures attn_implementation auto_map bos_token_id eos_token_id pad_token_id "
    "unk_token_id sep_token_id decoder_start_token_id torch_dtype dtype id2label "
    "label2id initializer_range use_cache transformers_version model_type "
    "max_position_embeddings attention_dropout hidden_dropout_prob resid_pdrop "
    "embd_pdrop attn_pdrop attention_probs_dropout_prob classifier_dropout dropout "
    "output_attentions output_hidden_states return_dict pretraining_tp problem_type "
    "chunk_size_feed_forward task_specific_params gradient_checkpointing "
    "summary_type summary_use_proj summary_activation summary_proj_to_labels "
    "summary_first_dropout is_encoder_decoder name_or_path _name_or_path "
    "router_aux_loss_coef output_router_logits router_jitter_noise "
    "n_ctx n_positions".split()
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
    told: Config = config.to_dict()
    # What transformers 5 leaves out where it is the default.
    told.setdefault("tie_word_embeddings", getattr(config, "tie_word_embeddings", True))
    return told


def rotary(config: Mapping[str, Any]) -> Config:
    """The rotary positions of a config: of transformers 5, or of its forerunners."""
    told = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if "full_attention" in told:  # by the type of the layer
        told = {k: v for part in told.values() for k, v in (part or {}).items()}
    return dict(told)


def check_rotary(config: Mapping[str, Any]) -> None:
    """Refuses rotary positions that KerasHub cannot compute.

    Some are scaled only beyond the length that a comparison reads.
    """
    parts = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(next(iter(parts.values()), None), dict):
        parts = {"": parts}
    for part in filter(None, parts.values()):
        kind = part.get("rope_type", part.get("type", "default"))
        if kind not in _ROTARY_TYPES:
            raise LoadRefused(
                f"KerasHub 0.32 cannot compute rotary positions of this kind. Received:"
                f" rope_type={kind!r}. Give a checkpoint with one of "
                f"{', '.join(_ROTARY_TYPES)}."
            )


def staged_config(told: Config) -> Config:
    """A config in which KerasHub's converter finds what it would lose."""
    told = copy.deepcopy(told)
    rope = rotary(told)
    if told["model_type"] == "llama":
        # It reads the scaling from where transformers 4 had it.
        told.pop("rope_scaling", None)
        if rope.get("rope_type") == "llama3":
            told["rope_scaling"] = rope
    if "rope_theta" not in told and "rope_theta" in rope:
        told["rope_theta"] = rope["rope_theta"]
    if told["model_type"] == "qwen3_moe":
        told.setdefault("num_experts", told.get("num_local_experts"))
    return told


def backbone_arguments(told: Mapping[str, Any]) -> Config:
    """Arguments of the backbone that KerasHub's converter leaves at their defaults."""
    rule = _ARGUMENTS.get(told["model_type"])
    return {} if rule is None else rule(told)


def _epsilon(told: Mapping[str, Any]) -> Config:
    return {"layer_norm_epsilon": told["rms_norm_eps"]}


def _linear(told: Mapping[str, Any], name: str) -> Config:
    rope = rotary(told)
    if rope.get("rope_type", rope.get("type")) != "linear":
        return {}
    return {name: rope["factor"]}


def _llama(told: Mapping[str, Any]) -> Config:
    return _epsilon(told) | _linear(told, "rope_position_scaling_factor")


def _scaled(told: Mapping[str, Any]) -> Config:
    return _linear(told, "rope_scaling_factor")


def _qwen2(told: Mapping[str, Any]) -> Config:
    window = bool(told.get("use_sliding_window"))
    return _scaled(told) | {"use_sliding_window_attention": window}


def _gpt2(told: Mapping[str, Any]) -> Config:
    inner = told.get("n_inner")
    return {} if inner is None else {"intermediate_dim": inner}


_ARGUMENTS: Mapping[str, Callable[[Mapping[str, Any]], Config]] = {
    "llama": _llama,
    "mistral": _scaled,
    "mixtral": _scaled,
    "qwen2": _qwen2,
    "qwen3": _scaled,
    "gpt2": _gpt2,
}
# What KerasHub computes with whatever the config says: too small a difference to be
# seen in the logits of every checkpoint.
_FIXED: Mapping[str, Config] = {
    "gemma": {"rms_norm_eps": 1e-6},
    "gemma2": {"rms_norm_eps": 1e-6},
    "gemma3_text": {"rms_norm_eps": 1e-6},
    "gpt2": {"layer_norm_epsilon": 1e-5},
    "bert": {"layer_norm_eps": 1e-12},
}


def check_fixed(told: Mapping[str, Any]) -> None:
    """Refuses a value that KerasHub's class replaces by another."""
    for key, fixed in _FIXED.get(told["model_type"], {}).items():
        if not math.isclose(told[key], fixed, rel_tol=1e-4):
            raise LoadRefused(
                f"KerasHub 0.32 computes this family with {key}={fixed}, whatever its "
                f"config says. Received: {key}={told[key]}. Give another checkpoint."
            )


def not_taken_over(config: Any) -> list[str]:
    """Keys of a config, with their values, that KerasHub's converter does not read.

    Those that are at the default of their class are left out.
    """
    told, usual = as_dict(config), as_dict(type(config)())
    heads = told.get("num_attention_heads")
    if heads and told.get("head_dim") == told.get("hidden_size", 0) // heads:
        usual["head_dim"] = told["head_dim"]  # follows from the others
    if set(told.get("layer_types") or ()) <= {"full_attention"}:
        usual["layer_types"] = told.get("layer_types")
    known = keys_read(staged_config(told)) | _HARMLESS
    left = [k for k in told if k not in known and told[k] != usual.get(k)]
    return [f"{key}={told[key]!r}" for key in sorted(left)]


#: Tokens of the longest sequence that is compared.
LONGEST = 1100
# Families whose sliding window was compared with transformers', at small windows.
_WINDOWS_COMPARED = ("mistral", "mixtral", "gemma2", "gemma3_text")


def compared_length(told: Mapping[str, Any], usual: int) -> int:
    """Tokens to compare on: beyond the sliding window, if a model has one.

    Raises:
        LoadRefused: if that would be too long, and KerasHub is not known to compute it.
    """
    most = told.get("max_position_embeddings") or told.get("n_positions") or LONGEST
    if "roberta" in told["model_type"]:  # its positions begin behind the padding's
        most -= told["pad_token_id"] + 1
    usual = min(usual, most)
    window = told.get("sliding_window")
    if not window or told.get("use_sliding_window") is False or window >= most:
        return usual
    if window + usual <= LONGEST:
        return min(window + usual, most)
    if told["model_type"] not in _WINDOWS_COMPARED:
        raise LoadRefused(
            "Whether KerasHub computes this sliding window could be seen only on longer"
            f" text than is compared. Received: sliding_window={window}. Give a "
            "checkpoint without a sliding window."
        )
    return usual
