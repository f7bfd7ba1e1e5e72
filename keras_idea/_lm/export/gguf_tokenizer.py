"""The tokenizer of a Hugging Face folder, written into a GGUF file."""

import json
import pathlib
from typing import Any

from keras_idea.errors import ExportRefused
from keras_idea.hub import tokenizers
from keras_idea.hub.compare import TEXTS
from keras_idea.hub.gguf_file import UNCUT, llama_cpp_name

# llama.cpp's types of tokens, which are SentencePiece's.
_NORMAL, _UNKNOWN, _CONTROL, _UNUSED, _BYTE = 1, 2, 3, 5, 6


def add_tokenizer(writer: Any, folder: pathlib.Path, config: Any) -> None:
    """Adds the tokens, merges or scores, special ids and the chat template.

    Raises:
        ExportRefused: if llama.cpp would make other token ids of a text; why.
    """
    tokenizer = tokenizers.read_tokenizer(folder)
    if tokenizer is None:
        writer.add_tokenizer_model("none")
        return
    spec, pieces = tokenizers.spec_of(tokenizer), tokenizers.is_sentencepiece(tokenizer)
    if spec is None or spec["model"]["type"] != "BPE":
        kind = type(tokenizer).__name__ if spec is None else spec["model"]["type"]
        raise ExportRefused(
            "llama.cpp would cut texts otherwise than this tokenizer, which is "
            f"{kind}. Use the Hugging Face folder."
        )
    special = {t["content"]: t["id"] for t in spec["added_tokens"]}
    ids = {**spec["model"]["vocab"], **special}
    texts = {index: text for text, index in ids.items()}
    size, unknown = config.vocab_size, spec["model"].get("unk_token") or "<unk>"
    tokens = [texts.get(index, f"[PAD{index}]") for index in range(size)]
    merges = tokenizers.merges_of(spec["model"])

    def kind_of(index: int, text: str) -> int:
        if index not in texts:
            return _UNUSED
        if pieces and text == unknown:
            return _UNKNOWN
        if pieces and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return _BYTE
        return _CONTROL if text in special else _NORMAL

    writer.add_tokenizer_model("llama" if pieces else "gpt2")
    writer.add_tokenizer_pre("default" if pieces else _pre_of(tokenizer, merges))
    writer.add_token_list(tokens)
    writer.add_token_types([kind_of(i, text) for i, text in enumerate(tokens)])
    if pieces:
        ranks = {merge.replace(" ", "", 1): rank for rank, merge in enumerate(merges)}
        writer.add_token_scores([-float(ranks.get(t, len(ranks) + 1)) for t in tokens])
        said = json.dumps([spec.get("normalizer"), spec.get("pre_tokenizer")])
        schemes = (
            '"Prepend"',
            '"prepend_scheme": "first"',
            '"prepend_scheme": "always"',
        )
        writer.add_add_space_prefix(any(scheme in said for scheme in schemes))
        if unknown in tokens:
            writer.add_unk_token_id(tokens.index(unknown))
    else:
        # A list that is not empty, and merges nothing.
        writer.add_token_merges(merges or [f"{tokens[-1]} {tokens[-1]}"])
    for name in ("bos", "eos", "pad"):
        known = getattr(tokenizer, f"{name}_token_id", None)
        if known is None:
            known = getattr(config, f"{name}_token_id", None)
        known = known[0] if isinstance(known, list) else known
        if known is not None:
            getattr(writer, f"add_{name}_token_id")(int(known))
    writer.add_add_bos_token(tokenizers.starts_texts(tokenizer))
    writer.add_add_eos_token(False)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _pre_of(tokenizer: Any, merges: list[str]) -> str:
    """llama.cpp's name of how a byte-level tokenizer cuts text into words."""
    name = llama_cpp_name(tokenizer.backend_tokenizer)
    if name is not None:
        return name
    cut = tokenizer.backend_tokenizer.pre_tokenizer
    whole = all(len(cut.pre_tokenize_str(text)) == 1 for text in TEXTS)
    if whole and not any(set("0123456789") & set(merge) for merge in merges):
        return UNCUT
    raise ExportRefused(
        "llama.cpp has no name for the way in which this tokenizer cuts text into "
        f"words. Received: {cut}. Use the Hugging Face folder."
    )
