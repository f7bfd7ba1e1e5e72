"""Ways to cut text into words before bytes are merged, by llama.cpp's names."""

import json
from typing import Any

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Those of llama.cpp that cut alike, first the one that we write.
_GPT2 = ("gpt-2", "phi-2", "mpt", "olmo", "jais")
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")
_PATTERNS = {
    ("llama-bpe",): (_LLAMA3,),
    ("qwen2",): (_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"),),
    # Numbers by groups of three, from the right; nothing else.
    ("superbpe",): (r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
}
#: Of all ways the only one that cuts nothing but numbers: KerasHub 0.32 merges bytes
#: across words.
UNCUT = "superbpe"


def pre_tokenizer(name: str | None) -> Any:
    """A pre-tokenizer of `tokenizers`, by llama.cpp's name; None: it is not known."""
    return next((made for names, made in _all() if name in names), None)


def llama_cpp_name(backend: Any) -> str | None:
    """llama.cpp's name of how a `tokenizers.Tokenizer` cuts text; None: it has none."""
    cut = _spec(backend.pre_tokenizer)
    return next((names[0] for names, made in _all() if _spec(made) == cut), None)


def _all() -> list[tuple[tuple[str, ...], Any]]:
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as pre

    def byte_level(use_regex: bool) -> Any:
        return pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)

    def split(patterns: tuple[str, ...]) -> Any:
        parts: list[Any] = [pre.Split(Regex(cut), "isolated") for cut in patterns]
        return pre.Sequence([*parts, byte_level(False)])

    return [
        (_GPT2, byte_level(True)),
        (_DIGITS, pre.Sequence([pre.Digits(True), byte_level(True)])),
        *((names, split(patterns)) for names, patterns in _PATTERNS.items()),
    ]


def _spec(cut: Any) -> Any:
    """What a pre-tokenizer does, as JSON without what changes no id."""
    import tokenizers

    bare = tokenizers.Tokenizer(tokenizers.models.BPE())
    if cut is not None:
        bare.pre_tokenizer = cut

    def plain(spec: Any) -> Any:
        if isinstance(spec, list):
            return [plain(part) for part in spec]
        if not isinstance(spec, dict):
            return spec
        return {k: plain(v) for k, v in spec.items() if k != "trim_offsets"}

    return plain(json.loads(bare.to_str())["pre_tokenizer"])
