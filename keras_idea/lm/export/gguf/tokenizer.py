"""A KerasHub tokenizer as llama.cpp's: what it is, and how it cuts text."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from keras_idea.errors import ExportRefused
from keras_idea.hub.cuts import UNCUT, llama_cpp_name
from keras_idea.hub.family import NUM_BYTES
from keras_idea.hub.hf.tokenizer import cuts_as_released
from keras_idea.hub.inputs import start_token
from keras_idea.keras_private.byte_characters import byte_characters
from keras_idea.keras_private.hub_tokenizers import python_tokenizer
from keras_idea.lm.export.gguf.keys import Value
from keras_idea.lm.export.gguf.released import (
    AS_RELEASED,
    merges_of,
    released_name,
)
from keras_idea.lm.export.target import NO_TOKENIZER
from keras_idea.validation import require

# llama.cpp's types of tokens, which are SentencePiece's.
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
# No byte of UTF-8 text: it ends the texts of a model of bytes that has no end.
_NO_BYTE = 0xFF


@dataclasses.dataclass(frozen=True)
class TokenTable:
    """What a file says of its tokenizer.

    Attributes:
        model: str, "gpt2" (byte-level BPE), "llama" (SentencePiece) or "none".
        tokens: list of str, by id.
        types: list of int, llama.cpp's types of the tokens.
        settings: dict, key -> value, "tokenizer.ggml." is put before the keys.
        scores: list of float, or None: of BPE.
        merges: list of str, "a b", or None: of SentencePiece.
        encode: function of a str that returns the token ids that llama.cpp must make
            of it; None: of no tokenizer, or where it cuts text as a released one does
            and KerasHub does not.
        notes: tuple of str, what the user should know.
    """

    model: str
    tokens: list[str] = dataclasses.field(default_factory=list)
    types: list[int] = dataclasses.field(default_factory=list)
    settings: dict[str, Value] = dataclasses.field(default_factory=dict)
    scores: list[float] | None = None
    merges: list[str] | None = None
    encode: Callable[[str], object] | None = None
    notes: tuple[str, ...] = ()


def vocabulary_of(preprocessor: Any, size: int) -> TokenTable:
    """The tokenizer of a model's `CausalLMPreprocessor`, or of None.

    Of the model's `size` token ids those above the tokenizer's are unused.

    Raises:
        ExportRefused: if llama.cpp would make other token ids of a text; why.
    """
    tokenizer = getattr(preprocessor, "tokenizer", None)
    if tokenizer is None:
        return TokenTable("none", notes=(NO_TOKENIZER,))
    known = tokenizer.vocabulary_size()
    if known > size and not cuts_as_released(tokenizer):
        raise ExportRefused(
            f"The tokenizer has {known} tokens, the model knows {size}: llama.cpp "
            "would not load it."
        )
    if getattr(tokenizer, "merges", None) is not None:
        vocabulary = _byte_pairs(tokenizer, size)
    elif getattr(tokenizer, "proto", None) is not None:
        vocabulary = _sentencepiece(tokenizer, size)
    else:
        raise ExportRefused(
            f"{type(tokenizer).__name__} is neither byte-level BPE nor SentencePiece, "
            "which llama.cpp reads."
        )
    settings = vocabulary.settings | _special(preprocessor)
    return dataclasses.replace(vocabulary, settings=settings)


def vocabulary_of_bytes(size: int) -> TokenTable:
    """The tokenizer of this package's own decoder: ids are bytes of UTF-8 text.

    Of 257 ids the last one ends a document.
    """
    ids = {character: byte for byte, character in enumerate(byte_characters())}
    tokens, types = _padded(ids, (), size)
    end = NUM_BYTES if size > NUM_BYTES else _NO_BYTE
    settings: dict[str, Value] = {
        "pre": UNCUT,
        "add_bos_token": False,
        "bos_token_id": end,
        "eos_token_id": end,
    }
    return TokenTable(
        "gpt2",
        tokens,
        types,
        settings,
        merges=_no_merges(),
        encode=lambda text: list(text.encode()),
    )


def _byte_pairs(tokenizer: Any, size: int) -> TokenTable:
    if cuts_as_released(tokenizer):
        return _as_released(tokenizer, size)
    merges = merges_of(tokenizer)
    released = released_name(tokenizer)
    if not released:
        _check_merges(merges)
    special = tuple(tokenizer.unsplittable_tokens or ())
    tokens, types = _padded(tokenizer.vocabulary, special, size)
    return TokenTable(
        "gpt2",
        tokens,
        types,
        {"pre": released or UNCUT},
        merges=merges or _no_merges(),
        encode=None if released else tokenizer,
        notes=(AS_RELEASED.format(name=released),) if released else (),
    )


def _as_released(tokenizer: Any, size: int) -> TokenTable:
    """Of one that cuts text as its checkpoint does, which llama.cpp has a name for."""
    backend = python_tokenizer(tokenizer)
    name = llama_cpp_name(backend)
    if name is None:
        raise ExportRefused(
            "llama.cpp has no name for the way in which this tokenizer cuts text into "
            f"words: {backend.pre_tokenizer}. Export it by --hf."
        )
    ids = {text: i for text, i in backend.get_vocab().items() if i < size}
    special = [t.content for t in backend.get_added_tokens_decoder().values()]
    tokens, types = _padded(ids, special, size)
    return TokenTable(
        "gpt2",
        tokens,
        types,
        {"pre": name},
        merges=merges_of(tokenizer),
        encode=tokenizer,
    )


def _no_merges() -> list[str]:
    """A list that neither GGUF nor llama.cpp takes for empty, and merges nothing."""
    character = byte_characters()[_NO_BYTE]
    return [f"{character} {character}"]


def _check_merges(merges: list[str]) -> None:
    """Refuses merges that llama.cpp would not do where KerasHub does."""
    digits = frozenset("0123456789")
    mixed = next((merge for merge in merges if digits & set(merge)), None)
    if mixed is None:
        return
    raise ExportRefused(
        "llama.cpp cannot cut text as this tokenizer does: it has a merge with a digit "
        f"({mixed!r}), and KerasHub 0.32 merges across words, which llama.cpp does for "
        "no tokenizer that merges digits (known are those of GPT-2, Llama 3 and Qwen). "
        'Train with tokenizer = "bytes", or with a "bpe" of this version, which leaves '
        "digits apart; or take --hf."
    )


def _padded(
    ids: dict[str, int], special: Iterable[str], size: int
) -> tuple[list[str], list[int]]:
    """Tokens and their types by id, those that nothing becomes among them."""
    tokens = {i: token for token, i in ids.items()}
    special = set(special)
    texts = [tokens.get(i, f"[PAD{i}]") for i in range(max(size, len(tokens)))]
    types = [
        UNUSED if i not in tokens else CONTROL if text in special else NORMAL
        for i, text in enumerate(texts)
    ]
    return texts, types


def _sentencepiece(tokenizer: Any, size: int) -> TokenTable:
    name = "sentencepiece.sentencepiece_model_pb2"
    proto = require(name, "The export of its tokenizer", "gguf", ExportRefused)
    model = proto.ModelProto.FromString(tokenizer.proto)
    _check_sentencepiece(model, proto)
    count = size - len(model.pieces)
    pads = range(len(model.pieces), size)
    return TokenTable(
        "llama",
        [piece.piece for piece in model.pieces] + [f"[PAD{i}]" for i in pads],
        [piece.type for piece in model.pieces] + [UNUSED] * count,
        {
            "pre": "default",
            "add_space_prefix": model.normalizer_spec.add_dummy_prefix,
            "unknown_token_id": max(model.trainer_spec.unk_id, 0),
        },
        scores=[piece.score for piece in model.pieces] + [-1000.0] * count,
        encode=tokenizer,
    )


def _check_sentencepiece(model: Any, proto: Any) -> None:
    """Refuses what llama.cpp's own SentencePiece does not do."""
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    wrong = [
        what
        for what, is_so in {
            "is no BPE": trainer.model_type != proto.TrainerSpec.BPE,
            "has no bytes for unknown characters": not trainer.byte_fallback,
            "folds characters": bool(normalizer.precompiled_charsmap),
            "takes spaces out": normalizer.remove_extra_whitespaces,
            "puts spaces behind words": trainer.treat_whitespace_as_suffix,
        }.items()
        if is_so
    ]
    if wrong:
        raise ExportRefused(
            f"llama.cpp would make other token ids of a text: the SentencePiece model "
            f"{' and '.join(wrong)}."
        )


def _special(preprocessor: Any) -> dict[str, Value]:
    """Settings of the tokens that begin, end and fill texts."""
    tokenizer = preprocessor.tokenizer
    names = {
        "bos_token_id": "start_token_id",
        "eos_token_id": "end_token_id",
        "padding_token_id": "pad_token_id",
    }
    ids = {key: getattr(tokenizer, name, None) for key, name in names.items()}
    return {
        **{key: int(i) for key, i in ids.items() if i is not None},
        "add_bos_token": start_token(preprocessor) is not None,
        "add_eos_token": False,
    }
