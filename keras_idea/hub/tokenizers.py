"""Tokenizers of Hugging Face as KerasHub ones with the same ids, and the way back."""

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

from keras_idea.errors import LoadRefused
from keras_idea.hub.compare import TEXTS, first_difference
from keras_idea.hub.inputs import start_token
from keras_idea.keras_private.hub_importers import (
    python_tokenizer,
    replace_python_tokenizer,
)

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
    if getattr(tokenizer, "merges", None) is not None and cuts_words(theirs):
        cut_as(tokenizer, plain_backend(theirs))
        notes.append(OWN_CUT)
    if not causal:
        settle_word_pieces(tokenizer, theirs)

    def encode(text: str) -> list[int]:
        ids: list[int] = theirs.encode(text, add_special_tokens=False)
        return ids

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
        difference = difference or first_difference(
            functools.partial(_packed, made), theirs.encode, TEXTS[:1]
        )
    if difference:
        raise LoadRefused(
            f"KerasHub's {type(tokenizer).__name__} makes other token ids than "
            f"transformers: {difference}. Give a checkpoint with another tokenizer."
        )
    special = dict.fromkeys(theirs.all_special_tokens)
    spelt = [t for t in special if own(f"a {t}b") != encode(f"a {t}b")]
    notes += [_SPECIAL.format(tokens=", ".join(spelt))] if spelt else []
    if causal:
        bare = encode("x")
        begin = theirs.encode("x")[: -len(bare) or None][:1]
        made.add_start_token = begin == [theirs.bos_token_id]
        if not made.add_start_token and first_of_prompt(made, "x") != bare[0]:
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
    ids: list[int] = features["token_ids"][
        features["padding_mask"].astype(bool)
    ].tolist()
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
            f"is {kind_of(theirs)} ({reason[:200]}). Give a checkpoint with another "
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

    tokenizer, start = preprocessor.tokenizer, start_token(preprocessor)
    if getattr(tokenizer, "merges", None) is not None:
        backend = tokenizers.Tokenizer.from_str(python_tokenizer(tokenizer).to_str())
    elif getattr(tokenizer, "proto", None) is not None:
        backend = _of_sentencepiece(tokenizer)
    else:
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
    """A `tokenizers.Tokenizer` of a KerasHub SentencePiece tokenizer."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    proto = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    model, kinds = proto.ModelProto.FromString(tokenizer.proto), proto.ModelProto
    pieces = [(p.piece, p.score) for p in model.pieces]
    ids, trainer = {p: i for i, (p, _) in enumerate(pieces)}, model.trainer_spec
    if trainer.model_type == proto.TrainerSpec.UNIGRAM:
        made = models.Unigram(
            pieces, trainer.unk_id, byte_fallback=trainer.byte_fallback
        )
    else:
        merges = [
            (-score, ids[piece[:n]], ids[piece[n:]], (piece[:n], piece[n:]))
            for piece, score in pieces
            for n in range(1, len(piece))
            if piece[:n] in ids and piece[n:] in ids
        ]
        made = models.BPE(
            vocab=ids,
            merges=[pair for *_, pair in sorted(merges)],
            unk_token=pieces[trainer.unk_id][0],
            fuse_unk=True,
            byte_fallback=trainer.byte_fallback,
        )
    backend = Tokenizer(made)
    special = (kinds.SentencePiece.CONTROL, kinds.SentencePiece.USER_DEFINED)
    own = [p.piece for p in model.pieces if p.type in special]
    backend.add_special_tokens([AddedToken(piece, normalized=False) for piece in own])
    there: list[Any] = [normalizers.Replace(" ", _SPACE)]
    back: list[Any] = [decoders.Replace(_SPACE, " ")]
    back += [decoders.ByteFallback(), decoders.Fuse()]
    if model.normalizer_spec.add_dummy_prefix:
        there.insert(0, normalizers.Prepend(_SPACE))
        back.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(there)
    backend.decoder = decoders.Sequence(back)
    return backend
