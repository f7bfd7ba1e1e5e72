"""The tokenizer of a Hugging Face folder, written into a GGUF file."""

import json
import pathlib
from typing import Any

from keras_idea.errors import ExportRefused
from keras_idea.hub.compare import TEXTS
from keras_idea.hub.cuts import UNCUT, llama_cpp_name
from keras_idea.hub.tokenizers import is_sentencepiece, read_tokenizer

# llama.cpp's types of tokens, which are SentencePiece's.
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6


def add_tokenizer(writer: Any, folder: pathlib.Path, config: Any) -> None:
    """Adds the tokens, merges or scores, special ids and the chat template.

    Raises:
        ExportRefused: if llama.cpp would make other token ids of a text; why.
    """
    tokenizer = read_tokenizer(folder)
    if tokenizer is None:
        writer.add_tokenizer_model("none")
        return
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ExportRefused(
            f"{type(tokenizer).__name__} has no tokenizer.json, of which a GGUF file's "
            "tokenizer is made. Save the folder with a fast tokenizer."
        )
    spec = json.loads(backend.to_str())
    if spec["model"]["type"] != "BPE":
        raise ExportRefused(
            f"llama.cpp would cut texts otherwise than this tokenizer, which is "
            f"{spec['model']['type']}. Use the Hugging Face folder."
        )
    size = int(config.vocab_size)
    special = {t["content"]: t["id"] for t in spec["added_tokens"]}
    ids = {**spec["model"]["vocab"], **special}
    texts = {index: text for text, index in ids.items() if index < size}
    tokens = [texts.get(index, f"[PAD{index}]") for index in range(size)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    if is_sentencepiece(tokenizer):
        _add_sentencepiece(writer, spec, tokens, texts, special, merges)
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(_pre_of(backend, merges))
        writer.add_token_list(tokens)
        types = [
            _UNUSED if i not in texts else _CONTROL if text in special else _NORMAL
            for i, text in enumerate(tokens)
        ]
        writer.add_token_types(types)
        # A list that is not empty, and merges nothing.
        writer.add_token_merges(merges or [f"{tokens[-1]} {tokens[-1]}"])
    _add_special(writer, tokenizer, config)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _add_sentencepiece(
    writer: Any,
    spec: dict[str, Any],
    tokens: list[str],
    texts: dict[int, str],
    special: dict[str, int],
    merges: list[str],
) -> None:
    ranks = {merge.replace(" ", "", 1): rank for rank, merge in enumerate(merges)}
    unknown = spec["model"].get("unk_token") or "<unk>"

    def kind(index: int, text: str) -> int:
        if index not in texts:
            return _UNUSED
        if text == unknown:
            return _UNKNOWN
        if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return _BYTE
        return _CONTROL if text in special else _NORMAL

    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(ranks.get(t, len(ranks) + 1)) for t in tokens])
    writer.add_token_types([kind(i, text) for i, text in enumerate(tokens)])
    said = json.dumps([spec.get("normalizer"), spec.get("pre_tokenizer")])
    prepends = '"Prepend"' in said or '"prepend_scheme": "first"' in said
    prepends = prepends or '"prepend_scheme": "always"' in said
    writer.add_add_space_prefix(prepends)
    if unknown in tokens:
        writer.add_unk_token_id(tokens.index(unknown))


def _pre_of(backend: Any, merges: list[str]) -> str:
    """llama.cpp's name of how a byte-level tokenizer cuts text into words."""
    name = llama_cpp_name(backend)
    if name is not None:
        return name
    cut = backend.pre_tokenizer
    whole = all(len(cut.pre_tokenize_str(text)) == 1 for text in TEXTS)
    if whole and not any(set("0123456789") & set(merge) for merge in merges):
        return UNCUT
    raise ExportRefused(
        "llama.cpp has no name for the way in which this tokenizer cuts text into "
        f"words. Received: {cut}. Use the Hugging Face folder."
    )


def _add_special(writer: Any, tokenizer: Any, config: Any) -> None:
    for name in ("bos", "eos", "pad"):
        known = getattr(tokenizer, f"{name}_token_id", None)
        if known is None:
            known = getattr(config, f"{name}_token_id", None)
        known = known[0] if isinstance(known, list) else known
        if known is not None:
            getattr(writer, f"add_{name}_token_id")(int(known))
    bare = tokenizer.encode("x", add_special_tokens=False)
    begin = tokenizer.encode("x")[: -len(bare) or None][:1]
    start = begin == [tokenizer.bos_token_id] and len(bare) > 0
    writer.add_add_bos_token(start)
    writer.add_add_eos_token(False)
