"""Ways to cut text into words before bytes are merged, by llama.cpp's names."""

import json
from typing import Any

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_BY_PATTERN = {_LLAMA3: "llama-bpe", _QWEN2: "qwen2"}


def llama_cpp_name(backend: Any) -> str | None:
    """llama.cpp's name of how a `tokenizers.Tokenizer` cuts text; None: it has none."""
    spec = json.loads(backend.to_str()).get("pre_tokenizer") or {}
    parts = spec.get("pretokenizers", [spec])
    kinds = [part.get("type") for part in parts]
    last = parts[-1]
    if kinds[-1] != "ByteLevel" or last.get("add_prefix_space"):
        return None
    if kinds == ["ByteLevel"] and last.get("use_regex"):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and last.get("use_regex"):
        return "smollm" if parts[0].get("individual_digits") else None
    if kinds == ["Split", "ByteLevel"] and not last.get("use_regex"):
        pattern = parts[0]["pattern"].get("Regex", "")
        return _BY_PATTERN.get(pattern)
    return None
