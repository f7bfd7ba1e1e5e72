"""Configs of Hugging Face: what KerasHub 0.32 makes of them, and the way back.

Some differences are too small to be seen in outputs, or are seen only in longer texts
than are compared, so these rules say what KerasHub cannot compute.
"""

import copy
import dataclasses
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

from keras_idea._keras.hub_importers import converter_of, keys_read
from keras_idea.errors import ExportRefused, LoadRefused

Config = dict[str, Any]
HFConfig = Mapping[str, Any]

_SLIDING, _FULL = "sliding_attention", "full_attention"
_LINEAR = ("default", "linear")


@dataclasses.dataclass(frozen=True)
class Rules:
    """What is known of a family."""

    rotary: tuple[str, ...] = ("default",)  # types of positions that KerasHub computes
    # Type of layer ("": all) -> the only `rope_theta` it computes.
    wavelengths: Mapping[str, float] = dataclasses.field(default_factory=dict)
    # Key -> what KerasHub computes with, whatever the config says.
    fixed: Config = dataclasses.field(default_factory=dict)
    # One layer in so many has no window, whatever the config says; 0: as it says.
    full_every: int = 0
    # Argument that KerasHub's converter leaves at its default -> the key that has it.
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    always: Config = dataclasses.field(default_factory=dict)  # other arguments
    scales: bool = False  # whether it leaves out a linear scaling of positions
    takes: tuple[str, ...] = ()  # keys that `importer.scales` or others take over
    # Key of an activation that says "gelu", which KerasHub computes with the tangent.
    approximated: str = ""

    def fixed_of(self, hf_config: HFConfig) -> Config:
        """The keys and values with which KerasHub computes in any case."""
        if not self.full_every:
            return self.fixed
        numbers = range(1, hf_config["num_hidden_layers"] + 1)
        types = [_SLIDING if i % self.full_every else _FULL for i in numbers]
        return {**self.fixed, "layer_types": types}


_SCALED = Rules(_LINEAR, scales=True)
_UNWINDOWED = Rules(
    _LINEAR, fixed={"use_sliding_window": False}, full_every=1, scales=True
)
_EVERY_BLOCK = dataclasses.replace(
    _UNWINDOWED, fixed={"use_sliding_window": False, "decoder_sparse_step": 1}
)
_RMS_1E6, _LAYER_1E5 = {"rms_norm_eps": 1e-6}, Rules(fixed={"layer_norm_eps": 1e-5})
# Its blocks do so whatever this says; see `importer.scales`.
_BY_HEAD = {"query_head_dim_normalize": True}
_NO_CAPS = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
_NO_BIAS = {"attention_bias": False, "mlp_bias": False}
_RULES: Mapping[str, Rules] = {
    "llama": Rules(
        ("default", "llama3"),
        arguments={"layer_norm_epsilon": "rms_norm_eps"},
    ),
    "mistral": _SCALED,
    "mixtral": _SCALED,
    "qwen2": _UNWINDOWED,
    "qwen3": _UNWINDOWED,
    "qwen2_moe": _EVERY_BLOCK,
    "qwen3_moe": _EVERY_BLOCK,
    "smollm3": Rules(fixed={"use_sliding_window": False, **_NO_BIAS}, full_every=1),
    "gemma": Rules(wavelengths={"": 1e4}, fixed=_RMS_1E6),
    "gemma2": Rules(
        wavelengths={"": 1e4}, fixed=_RMS_1E6, full_every=2, always=_BY_HEAD
    ),
    "gemma3_text": Rules(
        _LINEAR,
        {_SLIDING: 1e4, _FULL: 1e6},
        {**_RMS_1E6, **_NO_CAPS, "use_bidirectional_attention": False},
        full_every=6,
        always=_BY_HEAD,
    ),
    "gpt2": Rules(
        fixed={"layer_norm_epsilon": 1e-5}, arguments={"intermediate_dim": "n_inner"}
    ),
    "bert": Rules(fixed={"layer_norm_eps": 1e-12}, approximated="hidden_act"),
    "roberta": _LAYER_1E5,
    "xlm-roberta": _LAYER_1E5,
    # Of images: what their classes fix is compared.
    "vit": Rules(takes=("layer_norm_eps",)),
    "deit": Rules(takes=("layer_norm_eps",)),
    "swin": Rules(takes=("hidden_size",)),
    "albert": Rules(fixed={"layer_norm_eps": 1e-12}),
}

# What changes no number that a model computes, or is compared in another place: by
# `_check_rotary`, or by the shapes of the weights.
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
#: Families that KerasHub has as language models.
LANGUAGE_MODELS = frozenset(
    "llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text "
    "gpt2 gpt_oss smollm3".split()
)
#: By the class of a backbone without "Backbone", and for a model made from nothing.
MODEL_TYPES = dict(
    pair.split(":")
    for pair in (
        "Llama:llama Llama3:llama Mistral:mistral Mixtral:mixtral Qwen:qwen2 "
        "Qwen3:qwen3 QwenMoe:qwen2_moe Qwen3Moe:qwen3_moe Gemma:gemma "
        "Gemma3:gemma3_text GPT2:gpt2 SmolLM3:smollm3 Bert:bert Roberta:roberta "
        "XLMRoberta:xlm-roberta DistilBert:distilbert Albert:albert ESM:esm ViT:vit "
        "DeiT:deit DINOV2:dinov2 SwinTransformer:swin"
    ).split()
)
# Tokens of the longest sequence that is compared.
_LONGEST = 1100


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


def read_json(path: str | os.PathLike) -> Any:
    """What a JSON file holds."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def read_config(folder: str | os.PathLike) -> Any:
    """The config of a folder as transformers reads it: a `PretrainedConfig`."""
    import transformers

    return transformers.AutoConfig.from_pretrained(folder)


def as_dict(config: Any) -> Config:
    """All keys of a config, with their defaults."""
    hf_config: Config = config.to_dict()
    # What transformers 5 leaves out if it is the default.
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
    """The arguments of the backbone that computes what a config describes."""
    converter, rules = converter_of(hf_config["model_type"]), rules_of(hf_config)
    found: Config = converter.convert_backbone_config(staged_config(hf_config))
    for argument, key in rules.arguments.items():
        if hf_config.get(key) is not None:
            found[argument] = hf_config[key]
    part = rotary_parts(hf_config).get("", {})
    if rules.scales and rotary_type(part) == "linear":
        found["rope_scaling_factor"] = part["factor"]
    return {**found, **rules.always}


def check_config(config: Any) -> None:
    """Refuses what KerasHub's class replaces by something else.

    Raises:
        LoadRefused: the message has the keys, and their values.
    """
    hf_config = as_dict(config)
    if hf_config.get("quantization_config"):
        raise LoadRefused(
            "KerasHub's converters cannot read quantized weights. Received: "
            f"quantization_config={hf_config['quantization_config']!r}. "
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
    lost = _other_rotations(hf_config, rules_of(hf_config)) or lost
    if lost:
        raise LoadRefused(
            "KerasHub 0.32 would compute something else than this config says. "
            f"Received: model_type={hf_config['model_type']!r}, {', '.join(lost)}. "
            "Give another checkpoint."
        )


def _other_rotations(hf_config: Config, rules: Rules) -> list[str]:
    """Keys of the rotary positions, with values, that KerasHub does not compute."""
    lost: Config = {}
    for kind, part in rotary_parts(hf_config).items():
        if rotary_type(part) not in rules.rotary:
            lost["rope_type"] = rotary_type(part)
        lost |= {k: v for k, v in part.items() if k not in _ROTARY_KEYS and v}
        wavelength = rules.wavelengths.get(kind, part.get("rope_theta"))
        if not _same(part.get("rope_theta", wavelength), wavelength):
            lost["rope_theta"] = part["rope_theta"]
    if lost.get("partial_rotary_factor") == 1:
        del lost["partial_rotary_factor"]
    return _said(lost)


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
    if set(hf_config.get("layer_types") or ()) <= {_FULL}:
        usual["layer_types"] = hf_config.get("layer_types")
    known = keys_read(staged_config(hf_config)) | _HARMLESS
    known |= {*rules.takes, *rules.arguments.values()}
    if not is_causal(config):
        known.add("tie_word_embeddings")
    fixed = dict(rules.fixed_of(hf_config))
    if _alias(hf_config.get(rules.approximated)) == "gelu_pytorch_tanh":
        fixed[rules.approximated] = hf_config[rules.approximated]
    wanted = {k: v for k, v in usual.items() if k not in known} | fixed
    return _said(
        {
            key: hf_config[key]
            for key in sorted(wanted)
            if key in hf_config and not _same(hf_config[key], wanted[key])
        }
    )


def is_causal(config: Any) -> bool:
    """Whether a checkpoint is a language model, by its architecture."""
    names = getattr(config, "architectures", None)
    if not names:  # not said: what KerasHub takes its family for
        return config.model_type in LANGUAGE_MODELS
    return any(end in names[0] for end in ("ForCausalLM", "LMHeadModel"))


def _said(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value!r}" for key, value in values.items()]


def _alias(value: Any) -> Any:
    return _ALIASES.get(value, value) if isinstance(value, str) else value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    if isinstance(a, float) or isinstance(b, float):
        # A GGUF file has them in float32.
        return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-6)
    return bool(_alias(a) == _alias(b))


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
    for _ in range(len(arguments)):
        now = backbone_arguments(hf_config)
        wrong = [a for a in now if a in arguments and not _same(now[a], arguments[a])]
        changes = (_changed(hf_config, now, a, arguments[a]) for a in wrong)
        changed = next((c for c in changes if c is not None), None)
        if changed is None:
            break
        hf_config = changed
    types: Any = hf_config.get("layer_types")
    if types and len(types) != hf_config["num_hidden_layers"]:
        types = rules_of(hf_config).fixed_of(hf_config).get("layer_types", types)
        hf_config["layer_types"] = types[: hf_config["num_hidden_layers"]]
    heads = hf_config.get("num_attention_heads")
    if hf_config.get("head_dim") and "head_dim" not in backbone_arguments(hf_config):
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
    hf_config |= rules.fixed_of(hf_config)
    if hf_config.get(rules.approximated) == "gelu":
        hf_config[rules.approximated] = "gelu_pytorch_tanh"
    return hf_config


def _changed(hf_config: Config, now: Config, argument: str, wanted: Any) -> Any:
    """The config with the change of one key that gives an argument its value.

    Of several the one that changes the fewest other arguments; None: there is none.
    """
    found: list[tuple[int, int, Config]] = []
    for path, value in _entries(hf_config):
        for tried in _values(hf_config, path, value, now[argument], argument, wanted):
            changed = _with(hf_config, path, tried)
            made = _arguments_or_none(changed)
            if made and _same(made.get(argument), wanted):
                others = sum(not _same(made.get(a), now[a]) for a in now)
                found.append((others, len(found), changed))
    return min(found)[2] if found else None


def _values(
    hf_config: Config, path: Any, value: Any, now: Any, argument: str, wanted: Any
) -> Iterator[Any]:
    """Values of a key to try: the argument's own, and that of a straight line."""
    sides = isinstance(wanted, tuple) and isinstance(value, int)  # of an image
    yield wanted[0] if sides else wanted
    if all(type(n) in (int, float) for n in (value, now, wanted)):
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
    inner = _with(config[first], tuple(rest), value) if rest else value
    return {**config, first: inner}


def compared_length(hf_config: Mapping[str, Any], usual: int) -> int:
    """Tokens to compare on: beyond the sliding window, if a model has a short one.

    The sliding windows of all families that are loaded were compared at small ones.
    """
    most = hf_config.get("max_position_embeddings") or hf_config.get("n_positions")
    most = most or _LONGEST
    if "roberta" in hf_config["model_type"]:  # its positions begin behind the padding's
        most -= hf_config["pad_token_id"] + 1
    usual = min(usual, most)
    window = hf_config.get("sliding_window")
    if not window or hf_config.get("use_sliding_window") is False:
        return usual
    return min(window + usual, most) if window + usual <= _LONGEST else usual
