"""What KerasHub 0.32 makes of a config of Hugging Face, by family: one row of data.

Some differences are too small to be seen in logits, or are seen only in longer texts
than are compared, so what KerasHub cannot compute is known by these rules. Each rule
that mends something has a test that fails once KerasHub mends it itself.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Config = dict[str, Any]
HFConfig = Mapping[str, Any]

_SLIDING, _FULL = "sliding_attention", "full_attention"


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is known of a family.

    Attributes:
        rotary: tuple of str, the types of rotary positions that KerasHub computes.
        wavelengths: dict, type of layer ("": all) -> the only `rope_theta` it computes.
        fixed: function of the config that returns what KerasHub computes with, key by
            key, whatever the config says.
        arguments: function of the config that returns arguments of the backbone that
            KerasHub's converter leaves at their defaults.
        takes: tuple of str, the keys that `arguments` or `weights.py` takes over.
        approximated: str, key of an activation that says "gelu" and that KerasHub
            computes with the tangent, "gelu_pytorch_tanh"; "": none.
    """

    rotary: tuple[str, ...] = ("default",)
    wavelengths: Mapping[str, float] = dataclasses.field(default_factory=dict)
    fixed: Callable[[HFConfig], Config] = lambda hf_config: {}
    arguments: Callable[[HFConfig], Config] = lambda hf_config: {}
    takes: tuple[str, ...] = ()
    approximated: str = ""


def rules_of(hf_config: HFConfig) -> Rules:
    """The `Rules` of a config's family."""
    return _RULES.get(hf_config["model_type"], Rules())


def rotary_parts(hf_config: HFConfig) -> dict[str, Config]:
    """The rotary positions of a config, by type of layer; "": of all layers.

    Of transformers 5, or of its forerunners.
    """
    parts = hf_config.get("rope_parameters") or hf_config.get("rope_scaling") or {}
    if not isinstance(next(iter(parts.values()), None), dict):
        parts = {"": parts}
    return {kind: dict(part) for kind, part in parts.items() if part}


def rotary_type(part: HFConfig) -> str:
    """Such as "default" or "linear"."""
    return part.get("rope_type") or part.get("type") or "default"


def _epsilon(hf_config: HFConfig) -> Config:
    return {"layer_norm_epsilon": hf_config["rms_norm_eps"]}


def _linear(hf_config: HFConfig) -> Config:
    part = rotary_parts(hf_config).get("", {})
    if rotary_type(part) != "linear":
        return {}
    return {"rope_scaling_factor": part["factor"]}


def _inner(hf_config: HFConfig) -> Config:
    return (
        {}
        if hf_config["n_inner"] is None
        else {"intermediate_dim": hf_config["n_inner"]}
    )


def _without_window(hf_config: HFConfig) -> Config:
    return {
        "use_sliding_window": False,
        "layer_types": [_FULL] * hf_config["num_hidden_layers"],
    }


def _gemma2(hf_config: HFConfig) -> Config:
    numbers = range(hf_config["num_hidden_layers"])
    return {
        "rms_norm_eps": 1e-6,
        "layer_types": [_FULL if i % 2 else _SLIDING for i in numbers],
    }


def _gemma3(hf_config: HFConfig) -> Config:
    numbers = range(hf_config["num_hidden_layers"])
    return {
        "rms_norm_eps": 1e-6,
        "layer_types": [_SLIDING if (i + 1) % 6 else _FULL for i in numbers],
        "use_bidirectional_attention": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    }


def _by_head(hf_config: HFConfig) -> Config:
    # Its blocks do so whatever this says; see `weights.py`.
    return {"query_head_dim_normalize": True}


def _always(**values: Any) -> Callable[[HFConfig], Config]:
    return lambda hf_config: values


_LINEAR = ("default", "linear")
_SCALED = Rules(_LINEAR, arguments=_linear)
_UNWINDOWED = Rules(_LINEAR, fixed=_without_window, arguments=_linear)
_EVERY_BLOCK = dataclasses.replace(
    _UNWINDOWED,
    fixed=lambda hf_config: {**_without_window(hf_config), "decoder_sparse_step": 1},
)
_RULES: Mapping[str, Rules] = {
    "llama": Rules(("default", "llama3"), arguments=_epsilon, takes=("rms_norm_eps",)),
    "mistral": _SCALED,
    "mixtral": _SCALED,
    "qwen2": _UNWINDOWED,
    "qwen3": _UNWINDOWED,
    "qwen2_moe": _EVERY_BLOCK,
    "qwen3_moe": _EVERY_BLOCK,
    "smollm3": Rules(
        fixed=lambda hf_config: {
            **_without_window(hf_config),
            "attention_bias": False,
            "mlp_bias": False,
        }
    ),
    "gemma": Rules(wavelengths={"": 1e4}, fixed=_always(rms_norm_eps=1e-6)),
    "gemma2": Rules(wavelengths={"": 1e4}, fixed=_gemma2, arguments=_by_head),
    "gemma3_text": Rules(
        _LINEAR,
        wavelengths={_SLIDING: 1e4, _FULL: 1e6},
        fixed=_gemma3,
        arguments=_by_head,
    ),
    "gpt2": Rules(
        fixed=_always(layer_norm_epsilon=1e-5), arguments=_inner, takes=("n_inner",)
    ),
    "bert": Rules(fixed=_always(layer_norm_eps=1e-12), approximated="hidden_act"),
    "roberta": Rules(fixed=_always(layer_norm_eps=1e-5)),
    "xlm-roberta": Rules(fixed=_always(layer_norm_eps=1e-5)),
    "albert": Rules(fixed=_always(layer_norm_eps=1e-12)),
}
