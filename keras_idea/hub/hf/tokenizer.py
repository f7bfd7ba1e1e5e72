"""The tokenizer of a Hugging Face checkpoint as a KerasHub one, with the same ids."""

import functools
import importlib
import json
import os
import pathlib
import re
import types
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_idea.keras_private.hub_tokenizers import (
    python_tokenizer,
    replace_python_tokenizer,
)

#: What a preset keeps of a byte-level tokenizer that KerasHub alone cuts otherwise.
OWN_FILE = "tokenizers.json"
OWN_CUT = (
    "Its tokenizer cuts text into words, and KerasHub 0.32 cuts nothing: loaded by "
    "keras_idea it gives the ids of transformers, by KerasHub alone other ids of some "
    "texts."
)
_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "tokenizer_config.json",
    "sentencepiece.bpe.model",
)
_SPACE = "▁"
# What KerasHub's tokenizer of a Llama 3 demands when it is loaded from a preset.
_LLAMA3 = frozenset(
    (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
    )
)
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


def read_tokenizer(folder: pathlib.Path) -> Any:
    """The tokenizer that transformers loads from a folder; None if there is none."""
    if not any((folder / name).is_file() for name in _FILES):
        return None
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)


def write_tokenizer(
    tokenizer: Any, given: pathlib.Path, folder: pathlib.Path, model_type: str
) -> None:
    """Writes the files that KerasHub's converters read, from transformers' tokenizer.

    Which of them exist in a folder differs between versions of transformers.
    """
    for name in _FILES:
        if (given / name).is_file() and name != "tokenizer.json":
            os.symlink((given / name).resolve(), folder / name)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # of Python code alone
        return
    spec = json.loads(backend.to_str())
    byte_level = spec["model"]["type"] == "BPE" and not is_sentencepiece(tokenizer)
    if model_type == "llama" and byte_level:
        _add_demanded(spec["model"]["vocab"], spec["added_tokens"])
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    config = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    settings.unlink(missing_ok=True)
    end = tokenizer.eos_token
    config["eos_token"] = end
    config["bos_token"] = tokenizer.bos_token or end
    config.setdefault("do_lower_case", _lowers(spec))
    settings.write_text(json.dumps(config), encoding="utf-8")
    model = spec["model"]
    if model["type"] == "WordPiece":
        _write_if_absent(folder / "vocab.txt", "\n".join(_by_id(model["vocab"])) + "\n")
    elif model["type"] == "BPE" and model_type == "gpt2":
        _write_if_absent(folder / "vocab.json", json.dumps(tokenizer.get_vocab()))
        merges = "\n".join(_merges(model))
        _write_if_absent(folder / "merges.txt", f"#version: 0.2\n{merges}\n")
    elif model["type"] == "BPE" and model.get("byte_fallback"):
        path = folder / "tokenizer.model"
        path.unlink(missing_ok=True)
        first = tokenizer.tokenize("x")[0]
        path.write_bytes(sentencepiece_model(spec, first.startswith(_SPACE)))


def is_sentencepiece(tokenizer: Any) -> bool:
    """Whether a tokenizer of transformers is of SentencePiece's kind."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return tokenizer is not None
    return bool(json.loads(backend.to_str())["model"].get("byte_fallback"))


def kind_of(tokenizer: Any) -> str:
    """What a tokenizer of transformers is called: "byte-level BPE", "Unigram"."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or is_sentencepiece(tokenizer):
        return "SentencePiece BPE"
    kind = str(json.loads(backend.to_str())["model"]["type"])
    return f"byte-level {kind}" if kind == "BPE" else kind


def cuts_words(tokenizer: Any) -> bool:
    """Whether a byte-level tokenizer cuts a text before it merges, by `tokenizers`."""
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    cut = spec.get("pre_tokenizer")
    whole = {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}
    plain = cut is not None and whole.items() <= cut.items()
    return not plain or spec.get("normalizer") is not None


def _write_if_absent(path: pathlib.Path, text: str) -> None:
    if not path.exists():
        path.write_text(text, encoding="utf-8")


def _add_demanded(vocabulary: dict[str, int], added: list[dict[str, Any]]) -> None:
    """Adds the tokens that are missing, with ids that no text gets."""
    known = vocabulary | {token["content"]: token["id"] for token in added}
    missing = enumerate(sorted(_LLAMA3 - set(known)), start=max(known.values()) + 1)
    vocabulary.update({token: index for index, token in missing})


def _by_id(vocabulary: Mapping[str, int]) -> list[str]:
    return sorted(vocabulary, key=lambda token: vocabulary[token])


def _merges(model: Mapping[str, Any]) -> list[str]:
    return [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]


def _lowers(spec: Mapping[str, Any]) -> bool:
    return '"lowercase": true' in json.dumps(spec.get("normalizer"))


def sentencepiece_model(spec: Mapping[str, Any], prefixed: bool) -> bytes:
    """A SentencePiece model, serialized, of a `tokenizer.json` of BPE with bytes.

    `prefixed`: whether a space is put before a text.
    """
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    model, kinds = proto.ModelProto(), proto.ModelProto.SentencePiece
    bpe = spec["model"]
    merged = {merge.replace(" ", "", 1): r for r, merge in enumerate(_merges(bpe))}
    special = {token["content"]: token for token in spec["added_tokens"]}
    ids = {**bpe["vocab"], **{text: token["id"] for text, token in special.items()}}
    for piece in _by_id(ids):
        kind, score = kinds.NORMAL, -float(merged.get(piece, len(merged) + 1))
        if piece == (bpe.get("unk_token") or "<unk>"):
            kind, score = kinds.UNKNOWN, 0.0
        elif _BYTE.fullmatch(piece):
            kind, score = kinds.BYTE, 0.0
        elif piece in special:
            # Both are read in a text by transformers; SentencePiece reads these.
            kind, score = kinds.USER_DEFINED, 0.0
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.vocab_size = len(model.pieces)
    model.trainer_spec.byte_fallback = True
    unknown = bpe.get("unk_token") or "<unk>"
    if unknown in ids:
        model.trainer_spec.unk_id = ids[unknown]
        model.trainer_spec.unk_piece = unknown
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = prefixed
    model.normalizer_spec.escape_whitespaces = True
    model.normalizer_spec.remove_extra_whitespaces = False
    return model.SerializeToString()


def plain_backend(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of transformers' one, which adds no token to a text.

    None: it has none.
    """
    import tokenizers

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    spec = json.loads(backend.to_str())
    spec.update(post_processor=None, truncation=None, padding=None)
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def settle_word_pieces(tokenizer: Any, theirs: Any) -> None:
    """Makes a KerasHub WordPiece tokenizer fold a text as transformers' does.

    Its converter leaves accents, and spells out the special tokens in a text.
    """
    spec = json.loads(theirs.backend_tokenizer.to_str())
    if spec["model"]["type"] != "WordPiece":
        return
    normalizer = spec.get("normalizer") or {}
    tokenizer.lowercase = bool(normalizer.get("lowercase"))
    accents = normalizer.get("strip_accents")
    tokenizer.strip_accents = tokenizer.lowercase if accents is None else accents
    tokenizer.split_on_cjk = bool(normalizer.get("handle_chinese_chars", True))
    tokenizer.special_tokens_in_strings = True


def cut_as(tokenizer: Any, backend: Any) -> None:
    """Makes a KerasHub byte-level tokenizer encode as a `tokenizers.Tokenizer`.

    KerasHub 0.32 takes its pattern for a literal string, so it cuts no words. What it
    saves then has the file `OWN_FILE` too, which stock KerasHub does not read.
    """
    replace_python_tokenizer(tokenizer, backend)
    saved = type(tokenizer).save_assets

    @functools.wraps(saved)
    def save_assets(self: Any, folder: str) -> None:
        saved(self, folder)
        python_tokenizer(self).save(str(pathlib.Path(folder) / OWN_FILE))

    tokenizer.save_assets = types.MethodType(save_assets, tokenizer)
    tokenizer.cuts_as_released = True


def cuts_as_released(tokenizer: Any) -> bool:
    """Whether `cut_as` was given this tokenizer."""
    return getattr(tokenizer, "cuts_as_released", False)


def restore_cut(tokenizer: Any, preset: str | os.PathLike) -> None:
    """`cut_as` of a tokenizer that was loaded from a preset that has `OWN_FILE`."""
    file = pathlib.Path(preset) / "assets" / "tokenizer" / OWN_FILE
    if not file.is_file() or cuts_as_released(tokenizer):
        return
    import tokenizers

    cut_as(tokenizer, tokenizers.Tokenizer.from_file(str(file)))


def mend_tokenizer_config(tokenizer: Any) -> None:
    """Mends, once a process, a config of KerasHub that forgets special tokens.

    `Llama3Tokenizer.get_config` (0.32) leaves out the start and end tokens, so that a
    preset of a model with others does not load. The class is mended, not the object,
    because `save_to_preset` asks it.
    """
    kind: Any = next(
        (c for c in type(tokenizer).__mro__ if c.__name__ == "Llama3Tokenizer"), None
    )
    if kind is None or "bos_token" in kind.get_config(tokenizer):
        return
    forgetful = kind.get_config

    @functools.wraps(forgetful)
    def get_config(self: Any) -> dict[str, Any]:
        config = forgetful(self)
        if {self.start_token, self.end_token} - _LLAMA3:
            config.update(bos_token=self.start_token, eos_token=self.end_token)
        return config

    kind.get_config = get_config


def ids_of(tokenizer: keras.layers.Layer, text: str) -> list[int]:
    """What a KerasHub tokenizer makes of a text."""
    return np.asarray(tokenizer(text)).tolist()
