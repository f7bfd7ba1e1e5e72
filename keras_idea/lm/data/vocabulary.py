"""Text to token ids and back: bytes, tokenizers of KerasHub and of `tokenizers`."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keras_idea.errors import TextError
from keras_idea.files import json_digest
from keras_idea.validation import require

if TYPE_CHECKING:
    import keras_hub

#: Token ids `(tokens,)`.
Ids: TypeAlias = Sequence[int] | np.ndarray

#: Characters tokenized at once: a tokenizer needs some 100 bytes of memory for each.
CHUNK = 1 << 17
# Tokenized once: tells tokenizers with the same tokens and other rules apart.
_PROBE = "The  quick brown-fox's\t42.5 naïve ☃ 北京 🎉\r\n<s></s><|endoftext|> f(x):"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Converts text to token ids and back.

    Args:
        encode_batch: function. Takes a list of str and returns a list of int sequences.
        decode: function. Takes an int array `(tokens,)` and returns a str.
        token_bytes: float array `(vocabulary,)`. The bytes of text per id: none for
            special tokens.
        end_id: int or None. The token that ends a document. Defaults to None: no
            token does.
        fingerprint: str. Equal on every machine for tokenizers that give the same ids.
            Defaults to "".
        token_id: function. Takes the name of a token, such as "<s>", and returns its
            id, or None. Chat templates need it. Defaults to one that knows none.
        names: dict. The special tokens that a chat template refers to by name, such
            as "bos_token". Defaults to {}.
    """

    encode_batch: Callable[[list[str]], Sequence[Ids]]
    decode: Callable[[Ids], str]
    token_bytes: np.ndarray
    end_id: int | None = None
    fingerprint: str = ""
    token_id: Callable[[str], int | None] = {}.get
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def vocabulary_size(self) -> int:
        """int, one more than the largest id."""
        return len(self.token_bytes)

    def encode(self, text: str) -> np.ndarray:
        """Returns an int32 array `(tokens,)`, of a text of any length."""
        chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
        ids = (
            [np.asarray(i, "int32") for i in self.encode_batch(chunks)] if text else []
        )
        return np.concatenate([np.zeros(0, "int32"), *ids])


def byte_vocabulary(end: bool = False) -> Vocabulary:
    """Makes the vocabulary of the 256 bytes, each its own id.

    Args:
        end: bool. Whether a 257th id ends a document. Defaults to False.

    Returns:
        `Vocabulary`.

    Example:
    >>> byte_vocabulary().encode("a b")
    array([97, 32, 98], dtype=int32)
    """
    return Vocabulary(
        encode_batch=lambda texts: [np.frombuffer(t.encode(), "uint8") for t in texts],
        decode=lambda ids: bytes(int(i) for i in ids if i < 256).decode(
            "utf-8", errors="replace"
        ),
        token_bytes=np.array([1.0] * 256 + [0.0] * bool(end)),
        end_id=256 if end else None,
        fingerprint=f"bytes{256 + bool(end)}",
    )


def tokenizer_vocabulary(tokenizer: "keras_hub.tokenizers.Tokenizer") -> Vocabulary:
    """Makes the vocabulary of a KerasHub tokenizer.

    Args:
        tokenizer: `keras_hub` tokenizer. Byte-level BPE, SentencePiece or WordPiece.

    Returns:
        `Vocabulary`, whose `end_id` is the tokenizer's `end_token_id`.

    Example:
    >>> vocabulary = tokenizer_vocabulary(lm.preprocessor.tokenizer)
    """

    def encode_batch(texts: list[str]) -> list[Ids]:
        rows = tokenizer.tokenize(texts)
        return rows.to_list() if hasattr(rows, "to_list") else list(rows)

    byte_level = getattr(tokenizer, "merges", None) is not None
    known = tokenizer.vocabulary if byte_level else tokenizer.get_vocabulary()
    ids = known if isinstance(known, dict) else {t: i for i, t in enumerate(known)}
    # Of byte-level BPE a character is a byte; WordPiece marks what continues a word.
    mark = getattr(tokenizer, "suffix_indicator", None)
    size: Callable[[str], int] = len if byte_level else _piece_bytes
    if mark is not None:
        size = lambda token: len(token.removeprefix(mark).encode())  # noqa: E731
    special = {*tokenizer.special_tokens}
    special |= {*(getattr(tokenizer, "unsplittable_tokens", None) or ())}
    end_id = getattr(tokenizer, "end_token_id", None)
    attributes = {"bos_token": "start_token", "eos_token": "end_token"}
    names = {k: getattr(tokenizer, v, None) for k, v in attributes.items()}
    vocabulary = Vocabulary(
        encode_batch,
        lambda i: str(tokenizer.detokenize(np.asarray(i, "int32"))),
        _token_bytes(ids, special, size),
        end_id=None if end_id is None else int(end_id),
        token_id=dict(ids).get,
        names={key: name for key, name in names.items() if isinstance(name, str)},
    )
    probe = vocabulary.encode(_PROBE).tolist()
    rules = [type(tokenizer).__name__, sorted(ids.items()), end_id, probe]
    rules += [list(tokenizer.merges)] if byte_level else []
    return dataclasses.replace(vocabulary, fingerprint=json_digest(rules)[:32])


def huggingface_vocabulary(path: str | os.PathLike, end_token: str) -> Vocabulary:
    """Loads the vocabulary of a `tokenizer.json`, the file of Hugging Face.

    No special token is added, or recognized in a text.

    Args:
        path: str or path. The file.
        end_token: str. The token that ends a document.

    Returns:
        `Vocabulary`. Its `token_bytes` are exact for byte-level BPE and for tokenizers
        with byte fallback.

    Raises:
        MissingPackage: If `tokenizers` is not installed.
        TextError: If there is no such file, or the tokenizer has no `end_token`.

    Example:
    >>> vocabulary = huggingface_vocabulary("tokenizer.json", "<|endoftext|>")
    >>> vocabulary.end_id
    0
    """
    tokenizers = require("tokenizers", f"The tokenizer {str(path)!r}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    # The binding raises bare `Exception`.
    except Exception as error:
        raise TextError(f"{str(path)!r} is no tokenizer.json: {error}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    end_id = tokenizer.token_to_id(end_token)
    if end_id is None:
        raise TextError(f"The tokenizer {str(path)!r} has no token {end_token!r}.")
    spec = json.loads(tokenizer.to_str())
    special = {t["content"] for t in spec["added_tokens"] if t["special"]}
    size = len if "ByteLevel" in json.dumps(spec["pre_tokenizer"]) else _piece_bytes

    def encode_batch(texts: list[str]) -> list[Ids]:
        found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in found]

    return Vocabulary(
        encode_batch,
        lambda ids: tokenizer.decode([int(i) for i in ids]),
        _token_bytes(tokenizer.get_vocab(), special | {end_token}, size),
        end_id=end_id,
        fingerprint=json_digest([spec, end_id])[:32],
        token_id=tokenizer.token_to_id,
        names={"eos_token": end_token},
    )


def _token_bytes(
    ids: Mapping[str, int], special: set[str], size: Callable[[str], int]
) -> np.ndarray:
    """Float array `(vocabulary,)`: the bytes of text of each token."""
    sizes = np.zeros(max(ids.values()) + 1)  # the ids may have gaps
    for token, index in ids.items():
        sizes[index] = 0 if token in special else size(token)
    return sizes


def _piece_bytes(piece: str) -> int:
    """The bytes of text of a SentencePiece piece, "▁the" or "<0x41>"."""
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return 1
    return len(piece.replace("▁", " ").encode())
