"""Export to a GGUF file, which llama.cpp and what is built on it serve."""

import contextlib
import importlib.util
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_idea._files import replacing
from keras_idea._lm.export.gguf_tokenizer import add_tokenizer
from keras_idea._lm.export.hf import check_installed, export_hf
from keras_idea._lm.export.target import Export, check_target
from keras_idea._validation import check_choice, require
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.hub import configs
from keras_idea.hub.importer import weight_files

#: Types that this package writes; llama-cpp-python makes the others from "f16".
DTYPES = ("f32", "f16", "bf16", "q8_0")
QUANTIZED = ("q6_k", "q5_k_m", "q5_k_s", "q4_k_m", "q4_k_s", "q3_k_m", "q2_k")
_BLOCK = 32
# Largest difference that a type may make, as a share of a tensor's largest value.
_ERRORS = {"F32": 0.0, "F16": 5e-4, "BF16": 4e-3, "Q8_0": 4.5e-3}
_COARSE = 0.3
# What chooses among experts, and positions, are float32 in llama.cpp's converter too.
_FLOAT32 = ("ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "position_embd.weight")
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
# What llama.cpp and a config name otherwise, or alike.
_SAME = {
    "layer_norm_rms_eps": "rms_norm_eps",
    "final_logit_softcapping": "final_logit_softcapping",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}
_FALLBACK = (
    "{count} matrices are float16, because their rows are no multiple of 32 long, as "
    "blocks are. `round_to=32` avoids it."
)


class _Arch(NamedTuple):
    """How llama.cpp has a family."""

    name: str
    turned: bool = False  # its rotation pairs neighbors, transformers' halves of a head
    plus_one: bool = False  # norms multiply by the weight, transformers' by 1 + weight
    windowed: bool = False  # it has the sliding window
    largest: int = 0  # layers of the one model whose queries it scales otherwise


_LLAMA = _Arch("llama", turned=True)
ARCHS = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "qwen2": _Arch("qwen2"),
    "qwen3": _Arch("qwen3"),
    "qwen2_moe": _Arch("qwen2moe"),
    "qwen3_moe": _Arch("qwen3moe"),
    "smollm3": _Arch("smollm3", turned=True),
    "gemma": _Arch("gemma", plus_one=True),
    "gemma2": _Arch("gemma2", plus_one=True, windowed=True, largest=46),
    "gemma3_text": _Arch("gemma3", plus_one=True, windowed=True, largest=62),
    "gpt2": _Arch("gpt2"),
}


def export_gguf(
    model: keras.Model | str | os.PathLike, path: str | os.PathLike, dtype: str = "f16"
) -> Export:
    """Saves a narrow language model as a GGUF file, which llama.cpp loads.

    It is made of a Hugging Face folder, as `export_hf` writes and compares it, by the
    names of the `gguf` package. Its tensors are read back and compared with the
    folder's before the file is kept. Chat template and context length are in it.

    Args:
        model: keras.Model, str or path. A stock KerasHub `CausalLM`, as from `compact`
            or `load_run`; or a Hugging Face folder.
        path: str or path. The file. Its name ends in ".gguf".
        dtype: str. The type of the matrices: "f32", "f16", "bf16" or "q8_0" (8 bits,
            and a scale per 32 values); with llama-cpp-python installed also its
            K-quants, such as "q4_k_m". Vectors are float32. Defaults to "f16".

    Returns:
        `Export`.

    Raises:
        ExportRefused: If the path exists, a package is missing, or llama.cpp does not
            have the family, or would compute something else.
        ExportFailed: If the file does not match the folder. Nothing of it is left.

    Example:
    >>> print(export_gguf(ki.compact(lm), "narrow.gguf", "f16"))
    narrow.gguf: a GGUF file for llama.cpp's 'llama', f16; loaded back: ...
    """
    check_choice("dtype", dtype, (*DTYPES, *QUANTIZED))
    check_target(path, ".gguf")
    check_installed("The export to GGUF")
    require("gguf", "The export to GGUF", "gguf", ExportRefused)
    if dtype in QUANTIZED and importlib.util.find_spec("llama_cpp") is None:
        raise ExportRefused(
            f"dtype={dtype!r} needs llama.cpp's quantizer, which is not installed: pip "
            "install llama-cpp-python. Or use 'q8_0'."
        )
    with contextlib.ExitStack() as stack:
        if isinstance(model, (str, os.PathLike)):
            folder = pathlib.Path(model)
        else:
            room = stack.enter_context(tempfile.TemporaryDirectory())
            folder = pathlib.Path(room) / "folder"
            export_hf(model, folder, "float32")
        config = configs.read_config(folder)
        arch = _arch_of(config)
        temporary = stack.enter_context(replacing(path))
        _write(folder, config, arch, temporary, "f16" if dtype in QUANTIZED else dtype)
        if dtype in QUANTIZED:
            _quantize(temporary, dtype)
        match, halves = _check(folder, config, arch, temporary)
    notes = (_FALLBACK.format(count=halves),) if halves and dtype == "q8_0" else ()
    notes = (f"Its context is {_context(config, arch):,} tokens.", *notes)
    what = f"a GGUF file for llama.cpp's {arch.name!r}, {dtype}"
    return Export(path, what, match, notes)


def _arch_of(config: Any) -> _Arch:
    """llama.cpp's architecture for a config; refuses what it computes otherwise."""
    kind = config.model_type
    if kind not in ARCHS:
        raise ExportRefused(
            f"No GGUF file is written of model_type={kind!r}; these have one: "
            f"{', '.join(ARCHS)}. Use the Hugging Face folder."
        )
    # What llama.cpp computes, whatever the config says.
    fixed: dict[str, Any] = {"mlp_only_layers": []}
    if hasattr(config, "norm_topk_prob"):
        fixed["norm_topk_prob"] = kind == "qwen3_moe"
    if kind == "smollm3":
        numbers = range(1, config.num_hidden_layers + 1)
        fixed["no_rope_layers"] = [int(i % 4 != 0) for i in numbers]
    received = {key: getattr(config, key, None) for key in fixed}
    wrong = [f"{k}={v}" for k, v in received.items() if v not in (None, fixed[k])]
    caps = ("final_logit_softcapping", "attn_logit_softcapping")
    if kind == "gemma2":
        wrong += [f"{key}=None" for key in caps if getattr(config, key) is None]
    if wrong:
        raise ExportRefused(
            f"llama.cpp's {ARCHS[kind].name!r} computes something else. Received: "
            f"{', '.join(wrong)}. Use the Hugging Face folder."
        )
    return ARCHS[kind]


def _context(config: Any, arch: _Arch) -> int:
    """Tokens that the model allows, within a sliding window that llama.cpp lacks."""
    window = getattr(config, "sliding_window", None)
    used = getattr(config, "use_sliding_window", True)
    length = int(config.max_position_embeddings)
    return min(length, window) if window and used and not arch.windowed else length


def _head_dim(config: Any) -> int:
    size = getattr(config, "head_dim", None)
    return int(size or config.hidden_size // config.num_attention_heads)


def _write(
    folder: pathlib.Path, config: Any, arch: _Arch, path: pathlib.Path, dtype: str
) -> None:
    gguf = importlib.import_module("gguf")
    writer = gguf.GGUFWriter(path, arch.name, use_temp_file=True)
    try:
        writer.add_type("model")
        file_types = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16"}
        kind = file_types.get(dtype, "MOSTLY_Q8_0")
        writer.add_file_type(gguf.LlamaFileType[kind])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_keys(writer, config, arch, gguf)
        add_tokenizer(writer, folder, config)
        for name, values in _tensors(folder, config, arch):
            type_ = gguf.GGMLQuantizationType[_type(name, values.shape, dtype)]
            data = gguf.quants.quantize(values, type_)
            writer.add_tensor(name, data, raw_dtype=type_)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _type(name: str, shape: tuple[int, ...], dtype: str) -> str:
    if len(shape) == 1 or name.endswith(_FLOAT32):
        return "F32"
    if dtype == "q8_0" and shape[-1] % _BLOCK:
        return "F16"
    return dtype.upper()


def _add_keys(writer: Any, config: Any, arch: _Arch, gguf: Any) -> None:
    """Writes what llama.cpp has to know of the model besides its weights."""
    heads, size = config.num_attention_heads, _head_dim(config)
    inner = getattr(config, "n_inner", None) or 4 * config.hidden_size
    experts = getattr(config, "num_local_experts", None)
    parts = configs.rotary_parts(config.to_dict())
    rope = parts.get("full_attention", parts.get("", {}))
    local = parts.get("sliding_attention")
    known = {
        "vocab_size": config.vocab_size,
        "context_length": _context(config, arch),
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": getattr(config, "intermediate_size", inner),
        "head_count": heads,
        "head_count_kv": getattr(config, "num_key_value_heads", heads),
        "key_length": size,
        "value_length": size,
        "sliding_window": config.sliding_window if arch.windowed else None,
        "expert_count": getattr(config, "num_experts", None) or experts,
        **{key: getattr(config, name, None) for key, name in _SAME.items()},
    }
    if arch.name == "gpt2":
        known["layer_norm_eps"] = config.layer_norm_epsilon
    else:
        known["rope_dimension_count"] = size
        known["rope_freq_base"] = float(rope.get("rope_theta", 10_000.0))
    if configs.rotary_type(rope) == "linear":
        known["rope_scaling_type"] = gguf.RopeScalingType.LINEAR
        known["rope_scaling_factor"] = float(rope["factor"])
    for key, value in known.items():
        if value is not None:
            getattr(writer, f"add_{key}")(value)
    if local is not None:
        theta = float(local.get("rope_theta", 10_000.0))
        writer.add_float32(f"{arch.name}.rope.freq_base_swa", theta)


def _tensors(
    folder: pathlib.Path, config: Any, arch: _Arch
) -> Iterator[tuple[str, np.ndarray]]:
    """llama.cpp's names and float32 values, one after the other."""
    import safetensors

    gguf = importlib.import_module("gguf")
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == arch.name)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tied = getattr(config, "tie_word_embeddings", False)
    with contextlib.ExitStack() as stack:
        places: dict[str, Any] = {}
        for file in weight_files(folder):
            opened = stack.enter_context(safetensors.safe_open(file, "pt"))
            places |= dict.fromkeys(opened.keys(), opened)

        def read(name: str) -> np.ndarray:
            values: np.ndarray = places[name].get_tensor(name).float().numpy()
            return values

        merged: dict[str, list[str]] = {}
        for name in places:
            found = _EXPERT.fullmatch(name)
            if found:
                whole = f"{found[1]}.{_MIXTRAL.get(found[3], found[3])}.weight"
                whole = whole.replace("block_sparse_moe", "mlp")
                merged.setdefault(whole, []).append(name)
            else:
                merged[name] = [name]
        for name, parts in merged.items():
            if name == "lm_head.weight" and tied:
                continue
            of = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if of is None:
                raise ExportFailed(f"The gguf package has no place for {name!r}.")
            parts.sort(key=lambda part: [int(n) for n in re.findall(r"\d+", part)])
            values = [read(part) for part in parts]
            whole_values = np.stack(values) if _EXPERT.match(parts[0]) else values[0]
            yield of, np.ascontiguousarray(_turned(of, whole_values, config, arch))
    factors = _frequency_factors(config)
    if factors is not None:
        yield "rope_freqs.weight", factors


def _turned(name: str, values: np.ndarray, config: Any, arch: _Arch) -> np.ndarray:
    """A tensor as llama.cpp has it."""
    if arch.name == "gpt2" and re.search(r"(attn_qkv|output|ffn_\w+)\.weight", name):
        return values.T if values.ndim == 2 and "blk" in name else values
    part = name.rpartition("blk.")[2].partition(".")[2]
    if arch.plus_one and name.endswith("norm.weight"):
        values = values + 1
    if arch.largest and part in ("attn_q.weight", "attn_q_norm.weight"):
        # Behind a norm a factor on the queries is lost.
        last = "attn_q_norm.weight" if arch.name == "gemma3" else "attn_q.weight"
        own = config.num_hidden_layers == arch.largest
        head = _head_dim(config)
        theirs = config.hidden_size / config.num_attention_heads if own else head
        scale = math.sqrt(theirs / config.query_pre_attn_scalar)
        values = values * np.float32(scale) if part == last else values
    heads = {
        "attn_q.weight": config.num_attention_heads,
        "attn_k.weight": getattr(config, "num_key_value_heads", 0),
    }
    if arch.turned and part in heads:
        rows, columns = values.shape
        halves = values.reshape(heads[part], 2, -1, columns)
        return halves.swapaxes(1, 2).reshape(rows, columns)
    return values


def _frequency_factors(config: Any) -> np.ndarray | None:
    """By what Llama 3.1 and later divide each frequency; None: by nothing."""
    rope = configs.rotary_parts(config.to_dict()).get("", {})
    if configs.rotary_type(rope) != "llama3":
        return None
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    steps = np.arange(0, _head_dim(config), 2, dtype="float64") / _head_dim(config)
    turns = rope["original_max_position_embeddings"] / (
        2 * math.pi * rope["rope_theta"] ** steps
    )
    # Slow ones are divided, quick ones are not, those between in part.
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    factors: np.ndarray = 1 / ((1 - share) / rope["factor"] + share)
    return factors.astype("float32")


def _quantize(path: pathlib.Path, dtype: str) -> None:
    """Quantizes a file in place by llama.cpp."""
    llama = importlib.import_module("llama_cpp")
    options = llama.llama_model_quantize_default_params()
    options.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{dtype.upper()}")
    made = path.with_suffix(".quantized")
    code = llama.llama_model_quantize(str(path).encode(), str(made).encode(), options)
    if code:
        raise ExportFailed(f"llama.cpp cannot quantize the file to {dtype!r}.")
    made.replace(path)


def _check(
    folder: pathlib.Path, config: Any, arch: _Arch, path: pathlib.Path
) -> tuple[str, int]:
    """Compares a file with its folder; a line, and how many matrices are float16.

    Raises:
        ExportFailed: if a tensor, a token or a size is another one.
    """
    gguf = importlib.import_module("gguf")
    reader = gguf.GGUFReader(path)
    found = {tensor.name: tensor for tensor in reader.tensors}
    worst, halves, count = 0.0, 0, 0
    for name, values in _tensors(folder, config, arch):
        if name not in found:
            raise ExportFailed(f"The GGUF file lacks {name!r}.")
        tensor = found[name]
        kind = tensor.tensor_type.name
        read = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        largest = max(float(np.abs(values).max(initial=0.0)), 1e-30)
        apart = float(np.abs(read.reshape(values.shape) - values).max()) / largest
        if not apart <= _ERRORS.get(kind, _COARSE):  # NaN fails
            raise ExportFailed(f"{name!r} differs by {apart:.2g} of its largest value.")
        worst, count = max(worst, apart), count + 1
        halves += kind == "F16"
    if count != len(found):
        raise ExportFailed("The GGUF file holds other tensors.")
    return f"{count} tensors within {worst:.1e} of the largest value", halves
