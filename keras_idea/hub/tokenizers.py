"""Tokenizers of Hugging Face as KerasHub ones with the same ids, and the way back."""

import functools
import importlib
import json
import os
import pathlib
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_idea._keras.hub_importers import (
    python_tokenizer,
    replace_python_tokenizer,
)
from keras_idea.errors import LoadRefused
from keras_idea.hub.compare import TEXTS, first_difference
from keras_idea.hub.rebuild import add_to_config

#: What a preset keeps of a byte-level tokenizer that KerasHub alone cuts otherwise.
OWN_FILE = "tokenizers.json"
OWN_CUT = (
    "Its tokenizer cuts text into words, and KerasHub 0.32 does not: loaded by "
    "keras_idea it gives the ids of transformers, by KerasHub alone other ids of some "
    "texts."
)
_OTHERS = (
    "Of some texts KerasHub makes other token ids than transformers: {difference}."
)
_SPECIAL = "KerasHub spells out {tokens} in a text, where transformers reads one token."
_START = "KerasHub's `generate` puts {token} before each prompt, transformers does not."
_OTHER_FILES = (
    "Warning: transformers makes other ids of a text than the model's tokenizer: "
    "{difference}. Load it with `PreTrainedTokenizerFast`, not `AutoTokenizer`."
)
_FILES = (
    "tokenizer.json tokenizer.model vocab.json vocab.txt tokenizer_config.json "
    "sentencepiece.bpe.model"
).split()
_SPACE = "▁"
# What KerasHub's tokenizer of a Llama 3 demands when it is loaded from a preset.
_LLAMA3 = frozenset(
    "<|begin_of_text|> <|end_of_text|> <|eot_id|> <|start_header_id|> "
    "<|end_header_id|>".split()
)
_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")


def read_tokenizer(folder: pathlib.Path) -> Any:
    """The tokenizer that transformers loads from a folder; None if there is none."""
    if not any((folder / name).is_file() for name in _FILES):
        return None
    import transformers

    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    kind: Any = transformers.AutoTokenizer
    if said.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        # Beside a config, `AutoTokenizer` takes the family's class all the same.
        kind = transformers.PreTrainedTokenizerFast
    return kind.from_pretrained(folder)


def write_tokenizer(
    tokenizer: Any, given: pathlib.Path, folder: pathlib.Path, model_type: str
) -> None:
    """Writes the files that KerasHub's converters read, from transformers' tokenizer.

    Which of them exist in a folder differs between versions of transformers.
    """
    for name in _FILES:
        if (given / name).is_file() and name != "tokenizer.json":
            os.symlink((given / name).resolve(), folder / name)
    spec = spec_of(tokenizer)
    if spec is None:
        return
    model = spec["model"]
    byte_level = model["type"] == "BPE" and not is_sentencepiece(tokenizer)
    if model_type == "llama" and byte_level:
        # Those that are missing, with ids that no text gets.
        known = model["vocab"] | {t["content"]: t["id"] for t in spec["added_tokens"]}
        first = max(known.values()) + 1
        model["vocab"] |= {
            t: i for i, t in enumerate(sorted(_LLAMA3 - {*known}), first)
        }
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    settings = folder / "tokenizer_config.json"
    config = json.loads(settings.read_text("utf-8")) if settings.is_file() else {}
    end = tokenizer.eos_token
    config |= {"eos_token": end, "bos_token": tokenizer.bos_token or end}
    folded = '"lowercase": true' in json.dumps(spec.get("normalizer"))
    files: dict[str, str | bytes] = {}
    if model["type"] == "WordPiece":
        files["vocab.txt"] = "\n".join(_by_id(model["vocab"])) + "\n"
    elif model["type"] == "BPE" and model_type == "gpt2":
        files["vocab.json"] = json.dumps(tokenizer.get_vocab())
        files["merges.txt"] = "\n".join(["#version: 0.2", *merges_of(model), ""])
    files = {name: data for name, data in files.items() if not (folder / name).exists()}
    files[settings.name] = json.dumps({"do_lower_case": folded, **config})
    if model["type"] == "BPE" and model.get("byte_fallback"):
        first_piece = tokenizer.tokenize("x")[0]
        prefixed = first_piece.startswith(_SPACE)
        files["tokenizer.model"] = _sentencepiece_of(spec, prefixed)
    for name, data in files.items():
        (folder / name).unlink(missing_ok=True)  # a link to the file that was given
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def spec_of(tokenizer: Any) -> Any:
    """What a tokenizer of transformers does, as tokenizer.json; None: Python code."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else json.loads(backend.to_str())


def is_sentencepiece(tokenizer: Any) -> bool:
    """Whether a tokenizer of transformers is of SentencePiece's kind."""
    spec = spec_of(tokenizer)
    if spec is None:
        return tokenizer is not None
    return bool(spec["model"].get("byte_fallback"))


def starts_texts(tokenizer: Any) -> bool:
    """Whether a tokenizer of transformers puts the start token before a text."""
    bare = tokenizer.encode("x", add_special_tokens=False)
    begin = tokenizer.encode("x")[: -len(bare) or None][:1]
    return bool(bare) and begin == [tokenizer.bos_token_id]


def _kind_of(tokenizer: Any) -> str:
    """What a tokenizer of transformers is called: "byte-level BPE", "Unigram"."""
    if is_sentencepiece(tokenizer):
        return "SentencePiece BPE"
    kind = str(spec_of(tokenizer)["model"]["type"])
    return f"byte-level {kind}" if kind == "BPE" else kind


def _cuts_words(tokenizer: Any) -> bool:
    """Whether a byte-level tokenizer cuts a text before it merges, by `tokenizers`."""
    spec = spec_of(tokenizer)
    cut = spec.get("pre_tokenizer") or {}
    whole = {"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}
    return not whole.items() <= cut.items() or spec.get("normalizer") is not None


def _by_id(vocabulary: Mapping[str, int]) -> list[str]:
    return sorted(vocabulary, key=lambda token: vocabulary[token])


def merges_of(model: Mapping[str, Any]) -> list[str]:
    """The merges of a tokenizer.json, such as "a b"."""
    return [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]


def _sentencepiece_of(spec: Mapping[str, Any], prefixed: bool) -> bytes:
    """A SentencePiece model of a `tokenizer.json` of BPE with bytes.

    `prefixed`: whether a space is put before a text.
    """
    bpe = spec["model"]
    unknown = bpe.get("unk_token") or "<unk>"
    merged = {merge.replace(" ", "", 1): r for r, merge in enumerate(merges_of(bpe))}
    special = {token["content"]: token["id"] for token in spec["added_tokens"]}

    def piece(text: str) -> tuple[str, float, str]:
        if text == unknown:
            return text, 0.0, "UNKNOWN"
        if _BYTE.fullmatch(text):
            return text, 0.0, "BYTE"
        if text in special:
            # Both are read in a text by transformers; SentencePiece reads these.
            return text, 0.0, "USER_DEFINED"
        return text, -float(merged.get(text, len(merged) + 1)), "NORMAL"

    pieces = [piece(text) for text in _by_id({**bpe["vocab"], **special})]
    return sentencepiece_model(pieces, prefixed)


def sentencepiece_model(
    pieces: Sequence[tuple[str, float, str]], prefixed: bool = False
) -> bytes:
    """A SentencePiece model of BPE, serialized, that leaves a text as it is.

    Args:
        pieces: list of (text, score, kind), by their ids.
        prefixed: bool, whether a space is put before a text.
    """
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    model, kinds = proto.ModelProto(), proto.ModelProto.SentencePiece
    for index, (text, score, kind) in enumerate(pieces):
        model.pieces.add(piece=text, score=score, type=getattr(kinds, kind))
        if kind == "UNKNOWN":
            model.trainer_spec.unk_id, model.trainer_spec.unk_piece = index, text
    model.trainer_spec.model_type = proto.TrainerSpec.BPE
    model.trainer_spec.vocab_size = len(pieces)
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = prefixed
    model.normalizer_spec.escape_whitespaces = True
    model.normalizer_spec.remove_extra_whitespaces = False
    return model.SerializeToString()


def _plain_backend(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` of transformers' one, without special tokens."""
    import tokenizers

    bare = {"post_processor": None, "truncation": None, "padding": None}
    return tokenizers.Tokenizer.from_str(json.dumps({**spec_of(tokenizer), **bare}))


def _fold_alike(tokenizer: Any, theirs: Any) -> None:
    """Makes a KerasHub WordPiece tokenizer fold a text as transformers' does.

    Its converter leaves accents, and spells out the special tokens in a text.
    """
    spec = spec_of(theirs)
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
    preset of a model with others does not load.
    """

    def tokens(self: Any) -> dict[str, Any]:
        known = {"bos_token": self.start_token, "eos_token": self.end_token}
        return known if set(known.values()) - _LLAMA3 else {}

    for kind in type(tokenizer).__mro__:
        if kind.__name__ == "Llama3Tokenizer":
            add_to_config(kind, tokens)


def ids_of(tokenizer: keras.layers.Layer, text: str) -> list[int]:
    """What a KerasHub tokenizer makes of a text."""
    return np.asarray(tokenizer(text)).tolist()


def preprocessor_like(
    kind: Any, theirs: Any, staged: pathlib.Path, llama2: bool, causal: bool
) -> tuple[Any, tuple[str, ...]]:
    """The preprocessor of a task whose ids are transformers' own, and notes.

    Args:
        kind: class of the task.
        theirs: the tokenizer of transformers.
        staged: path of the folder that `write_tokenizer` wrote.
        llama2: bool, whether it is a Llama with a SentencePiece tokenizer.
        causal: bool, whether the task is a language model.

    Raises:
        LoadRefused: if KerasHub makes other ids.
    """
    made = _converted(kind, theirs, staged, llama2)
    tokenizer = made.tokenizer
    mend_tokenizer_config(tokenizer)
    notes: list[str] = []
    if getattr(tokenizer, "merges", None) is not None and _cuts_words(theirs):
        cut_as(tokenizer, _plain_backend(theirs))
        notes.append(OWN_CUT)
    if not causal:
        _fold_alike(tokenizer, theirs)
    encode = functools.partial(theirs.encode, add_special_tokens=False)
    own = functools.partial(ids_of, tokenizer)
    texts, others = _texts_of(theirs), []
    if is_sentencepiece(theirs):
        # SentencePiece puts its space before each text, transformers before some.
        others = [text for text in texts if text[:1].isspace()]
    elif not causal:
        # KerasHub's word pieces fold, drop and split a few characters otherwise.
        others = [text for text in texts if not text.isascii() or "\t" in text]
        others.append("Straße a\u200bb")
    difference = first_difference(own, encode, others)
    notes += [_OTHERS.format(difference=difference)] if difference else []
    difference = first_difference(own, encode, [t for t in texts if t not in others])
    if not causal:
        packed = functools.partial(_packed, made)
        difference = difference or first_difference(packed, theirs.encode, TEXTS[:1])
    if difference:
        raise LoadRefused(
            f"KerasHub's {type(tokenizer).__name__} makes other token ids than "
            f"transformers: {difference}. Give a checkpoint with another tokenizer."
        )
    special = dict.fromkeys(theirs.all_special_tokens)
    spelt = [t for t in special if own(f"a {t}b") != encode(f"a {t}b")]
    notes += [_SPECIAL.format(tokens=", ".join(spelt))] if spelt else []
    if causal:
        made.add_start_token = starts_texts(theirs)
        if not made.add_start_token and first_of_prompt(made, "x") != encode("x")[0]:
            notes.append(_START.format(token=tokenizer.start_token))
    return made, tuple(notes)


def first_of_prompt(preprocessor: Any, text: str) -> int:
    """The first token id that KerasHub's `generate` gives the model of a text."""
    # By name: the preprocessors of Gemma 3 and other families take it no other way.
    made = preprocessor.generate_preprocess(text, sequence_length=16)
    return int(np.asarray(made["token_ids"])[0])


def _packed(preprocessor: Any, text: str) -> list[int]:
    """An encoder's ids of a text, special tokens included."""
    features = {k: np.asarray(v) for k, v in preprocessor(text).items()}
    mask = features["padding_mask"].astype(bool)
    ids: list[int] = features["token_ids"][mask].tolist()
    return ids


def _converted(kind: Any, theirs: Any, staged: pathlib.Path, llama2: bool) -> Any:
    import keras_hub

    if llama2:
        tokenizer = keras_hub.models.LlamaTokenizer(str(staged / "tokenizer.model"))
        return keras_hub.models.LlamaCausalLMPreprocessor(tokenizer)
    try:
        return kind.preprocessor_cls.from_preset(str(staged))
    except Exception as error:  # a file that another kind of tokenizer has, or a token
        needed = kind.preprocessor_cls.tokenizer_cls.__name__
        reason = " ".join(str(error).replace(str(staged), "it").split())
        raise LoadRefused(
            f"KerasHub's {needed} cannot be made of this checkpoint's tokenizer, which "
            f"is {_kind_of(theirs)} ({reason[:200]}). Give a checkpoint with another "
            "tokenizer."
        ) from error


def _texts_of(tokenizer: Any) -> list[str]:
    """Texts on which to compare, some of its own tokens in a random order."""
    size, special = tokenizer.vocab_size, set(tokenizer.all_special_ids)
    drawn = np.random.default_rng(0).integers(0, size, 400).tolist()
    drawn = [index for index in drawn if index not in special]
    words = [tokenizer.decode([index]).strip() for index in drawn]
    made = [" ".join(words), "".join(words), tokenizer.decode(drawn)]
    # What is no UTF-8, or read as a special token, is compared in another place.
    for gone in ("\ufffd", *tokenizer.all_special_tokens):
        made = [text.replace(gone, "") for text in made]
    return [*TEXTS, *made]


def write_own_tokenizer(preprocessor: Any, folder: pathlib.Path) -> tuple[str, ...]:
    """Writes a KerasHub tokenizer as transformers' files, of which there were none.

    Returns:
        tuple of str, what the user should know.
    """
    import tokenizers
    import transformers
    from tokenizers import processors

    tokenizer = preprocessor.tokenizer
    starts = getattr(preprocessor, "add_start_token", False)
    start = tokenizer.start_token if starts else None
    if getattr(tokenizer, "merges", None) is not None:
        backend = tokenizers.Tokenizer.from_str(python_tokenizer(tokenizer).to_str())
    else:
        backend = _of_sentencepiece(tokenizer)
    if backend is None:
        kind = type(tokenizer).__name__
        return (f"It has no tokenizer: a {kind} cannot be written for transformers.",)
    if start is not None:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{start} $A",
            pair=f"{start} $A {start} $B",
            special_tokens=[(start, tokenizer.token_to_id(start))],
        )
    names = {"bos": "start_token", "eos": "end_token", "pad": "pad_token"}
    special = {f"{k}_token": getattr(tokenizer, v, None) for k, v in names.items()}
    special = {key: token for key, token in special.items() if isinstance(token, str)}
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, clean_up_tokenization_spaces=False, **special
    )
    theirs.save_pretrained(folder)
    read = transformers.AutoTokenizer.from_pretrained(folder)
    begin = [] if start is None else [tokenizer.token_to_id(start)]
    difference = first_difference(
        read.encode, lambda text: [*begin, *ids_of(tokenizer, text)], TEXTS
    )
    return (_OTHER_FILES.format(difference=difference),) if difference else ()


def _of_sentencepiece(tokenizer: Any) -> Any:
    """A `tokenizers.Tokenizer` of a SentencePiece tokenizer of BPE; None: it is not."""
    import tokenizers
    import transformers
    from transformers.tokenization_utils_base import generate_merges

    if getattr(tokenizer, "proto", None) is None:
        return None
    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    model = proto.ModelProto.FromString(tokenizer.proto)
    if model.trainer_spec.model_type != proto.TrainerSpec.BPE:
        return None
    pieces, kinds = model.pieces, proto.ModelProto.SentencePiece
    ids = {piece.piece: index for index, piece in enumerate(pieces)}
    scores = {piece.piece: piece.score for piece in pieces}
    made = transformers.LlamaTokenizer(
        vocab=ids,
        merges=generate_merges(ids, scores),
        unk_token=pieces[model.trainer_spec.unk_id].piece,
        bos_token=tokenizer.start_token,
        eos_token=tokenizer.end_token,
        add_prefix_space=model.normalizer_spec.add_dummy_prefix,
    )
    own = [p.piece for p in pieces if p.type in (kinds.CONTROL, kinds.USER_DEFINED)]
    backend = _plain_backend(made)
    special = [tokenizers.AddedToken(piece, normalized=False) for piece in own]
    backend.add_special_tokens(special)
    return backend
