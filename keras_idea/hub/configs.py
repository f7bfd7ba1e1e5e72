"""Configs of Hugging Face: what KerasHub 0.32 makes of them, and the way back.

Some differences are too small to be seen in outputs, or are seen only in longer texts
than are compared, so these rules say what KerasHub cannot compute.
"""

import copy
import dataclasses
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_idea.errors import ExportRefused, LoadRefused
from keras_idea.keras_private.hub_importers import converter_of, keys_read

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
        takes: tuple of str, the keys that `arguments` or `importer.scales` takes over.
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
    # Its blocks do so whatever this says; see `importer.scales`.
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
    # Of images: what their classes fix is compared.
    "vit": Rules(takes=("layer_norm_eps",)),
    "deit": Rules(takes=("layer_norm_eps",)),
    "swin": Rules(takes=("hidden_size",)),
    "albert": Rules(fixed=_always(layer_norm_eps=1e-12)),
}


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
    "n_ctx n_positions num_labels pooler_output_size pooler_act encoder_stride "
    "hidden_dropout_rate num_channels stage_names out_features out_indices num_layers "
    "drop_path_rate".split()
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


def backbone_arguments(hf_config: Config) -> Config:
    """The arguments of the backbone that computes what a config describes.

    KerasHub's converter leaves some at their defaults.
    """
    converter = converter_of(hf_config["model_type"])
    arguments: Config = converter.convert_backbone_config(staged_config(hf_config))
    return {**arguments, **rules_of(hf_config).arguments(hf_config)}


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
    sized = hf_config.get("vocab_size") or hf_config.get("image_size")
    if hf_config.get("is_encoder_decoder") or not sized:
        raise LoadRefused(
            "Only language models and encoders of text or images are loaded. Received: "
            f"model_type={hf_config['model_type']!r}. Load it with `keras_hub`, and "
            "compare it yourself."
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


#: By the class of a backbone without "Backbone", and for a model made from nothing.
MODEL_TYPES = {
    "Llama": "llama",
    "Llama3": "llama",
    "Mistral": "mistral",
    "Mixtral": "mixtral",
    "Qwen": "qwen2",
    "Qwen3": "qwen3",
    "QwenMoe": "qwen2_moe",
    "Qwen3Moe": "qwen3_moe",
    "Gemma": "gemma",
    "Gemma3": "gemma3_text",
    "GPT2": "gpt2",
    "SmolLM3": "smollm3",
    "Bert": "bert",
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "DistilBert": "distilbert",
    "Albert": "albert",
    "ESM": "esm",
    "ViT": "vit",
    "DeiT": "deit",
    "DINOV2": "dinov2",
    "SwinTransformer": "swin",
}


def model_type_of(backbone: Any) -> str:
    """The `model_type` of a backbone's family.

    Raises:
        ExportRefused: if KerasHub has no importer of such models.
    """
    kinds = [kind.__name__.removesuffix("Backbone") for kind in type(backbone).__mro__]
    found = next((MODEL_TYPES[kind] for kind in kinds if kind in MODEL_TYPES), None)
    if found is None:
        raise ExportRefused(
            f"No {kinds[0]}Backbone can be exported to Hugging Face; these can: "
            f"{', '.join(MODEL_TYPES)}. Export a KerasHub preset."
        )
    if found == "gemma" and backbone.use_post_ffw_norm:  # one class in KerasHub
        return "gemma2"
    return found


def config_like(hf_config: Config, arguments: Config) -> Config:
    """A config whose backbone has these arguments, as near as can be to `hf_config`.

    For each argument that differs, it finds the key that KerasHub's converter takes it
    from, by trying.
    """
    hf_config = copy.deepcopy(hf_config)
    arguments = {
        # Lists of a Keras model are tracked; transformers takes 1 for True.
        name: [int(v) if isinstance(v, bool) else v for v in value]
        if isinstance(value, list)
        else value
        for name, value in arguments.items()
    }
    fixed = rules_of(hf_config).fixed
    types: Any = hf_config.get("layer_types")
    now: Config = {}
    for _ in range(len(arguments)):
        now = backbone_arguments(hf_config)
        wrong = [a for a in now if a in arguments and not _alike(now[a], arguments[a])]
        changes = [_change(hf_config, now, a, arguments[a]) for a in wrong]
        change: Any = next((c for c in changes if c is not None), None)
        if change is None:
            break
        hf_config = change
    if types and len(types) != hf_config["num_hidden_layers"]:
        known: Any = fixed(hf_config)
        by_number = known.get("layer_types", hf_config["layer_types"])
        hf_config["layer_types"] = by_number[: hf_config["num_hidden_layers"]]
    heads = hf_config.get("num_attention_heads")
    if (
        heads
        and hf_config.get("head_dim")
        and "head_dim" not in backbone_arguments(hf_config)
    ):
        hf_config["head_dim"] = hf_config["hidden_size"] // heads
    if hf_config.get("head_dim", 0) is None:
        del hf_config["head_dim"]
    return hf_config


def default_config(model_type: str) -> Config:
    """What transformers takes for granted in a family, but what KerasHub replaces."""
    import transformers

    hf_config = as_dict(transformers.AutoConfig.for_model(model_type))
    hf_config.setdefault("head_dim", None)
    rules = rules_of(hf_config)
    hf_config |= rules.fixed(hf_config)
    if hf_config.get(rules.approximated) == "gelu":
        hf_config[rules.approximated] = "gelu_pytorch_tanh"
    return hf_config


def _change(hf_config: Config, now: Config, argument: str, wanted: Any) -> Any:
    """The config with the change of one key that gives an argument its value.

    Of several the one that changes the fewest other arguments; None: there is none.
    """
    found: list[tuple[int, int, Config]] = []
    for path, value in _entries(hf_config):
        for tried in _values(hf_config, path, value, now[argument], argument, wanted):
            changed = _with(hf_config, path, tried)
            made = _arguments_or_none(changed)
            if made and _alike(made.get(argument), wanted):
                others = sum(not _alike(made.get(a), now[a]) for a in now)
                found.append((others, len(found), changed))
    return min(found)[2] if found else None


def _values(
    hf_config: Config, path: Any, value: Any, now: Any, argument: str, wanted: Any
) -> Iterator[Any]:
    """Values of a key to try: the argument's own, and that of a straight line."""
    if value is None or isinstance(value, (bool, list)) or isinstance(wanted, list):
        yield wanted
        return
    if isinstance(wanted, tuple) and isinstance(value, int):  # of an image's sides
        yield wanted[0]
    numbers = (value, now, wanted)
    if not all(
        isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers
    ):
        return
    yield wanted
    made = _arguments_or_none(_with(hf_config, path, value + 1))
    slope = made[argument] - now if made and argument in made else 0
    if slope:
        solved = value + (wanted - now) / slope
        yield round(solved) if isinstance(value, int) else solved


def _arguments_or_none(hf_config: Config) -> Config | None:
    try:
        return backbone_arguments(hf_config)
    except Exception:  # such a value is not allowed
        return None


def _entries(config: Config, above: tuple[str, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """All keys of a config, those of dicts in it too, as paths, with their values."""
    for key, value in config.items():
        if isinstance(value, dict) and key.startswith("rope"):
            yield from _entries(value, (*above, key))
        elif not isinstance(value, (dict, str)) and key != "vocab_size_per_layer_input":
            yield (*above, key), value


def _with(config: Config, path: tuple[str, ...], value: Any) -> Config:
    first, *rest = path
    return {
        **config,
        first: _with(config[first], tuple(rest), value) if rest else value,
    }


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    return _same(a, b)


def read_json(path: str | os.PathLike) -> Any:
    """What a JSON file holds."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


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
