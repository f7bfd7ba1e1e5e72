"""Text to token ids and back: bytes, and tokenizers of KerasHub."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from keras_idea._files import json_digest

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
        token_id: function. Takes the name of a token, such as "<s>", and returns its
            id, or None. Chat templates need it.
        names: dict. The special tokens that a chat template refers to by name, such
            as "bos_token".
    """

    encode_batch: Callable[[list[str]], Sequence[Ids]]
    decode: Callable[[Ids], str]
    token_bytes: np.ndarray
    end_id: int | None = None
    fingerprint: str = ""
    token_id: Callable[[str], int | None] | None = None
    names: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def vocabulary_size(self) -> int:
        """int, one more than the largest id."""
        return len(self.token_bytes)

    def encode(self, text: str) -> np.ndarray:
        """Returns an int32 array `(tokens,)`, of a text of any length."""
        chunks = [text[i : i + CHUNK] for i in range(0, len(text), CHUNK)]
        found = self.encode_batch(chunks) if chunks else []
        return np.concatenate([np.zeros(0, int), *found]).astype("int32")


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

    def decode(ids: Ids) -> str:
        return bytes(int(i) for i in ids if i < 256).decode(errors="replace")

    return Vocabulary(
        lambda texts: [np.frombuffer(text.encode(), "uint8") for text in texts],
        decode,
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

    def size(token: str) -> int:
        if merges is not None:  # byte-level BPE: a character is a byte
            return len(token)
        if re.fullmatch("<0x[0-9A-F]{2}>", token):
            return 1
        return len(token.removeprefix(mark).replace("▁", " ").encode())

    merges = getattr(tokenizer, "merges", None)
    mark = getattr(tokenizer, "suffix_indicator", None) or ""  # of WordPiece
    known = tokenizer.get_vocabulary() if merges is None else tokenizer.vocabulary
    ids = known if isinstance(known, dict) else {t: i for i, t in enumerate(known)}
    unsplittable = getattr(tokenizer, "unsplittable_tokens", None) or ()
    silent = {*tokenizer.special_tokens, *unsplittable}
    token_bytes = np.zeros(max(ids.values()) + 1)  # the ids may have gaps
    for token, index in ids.items():
        token_bytes[index] = 0 if token in silent else size(token)
    end_id = getattr(tokenizer, "end_token_id", None)
    attributes = {"bos_token": "start_token", "eos_token": "end_token"}
    names = {key: getattr(tokenizer, name, None) for key, name in attributes.items()}
    vocabulary = Vocabulary(
        encode_batch,
        lambda ids: str(tokenizer.detokenize(np.asarray(ids, "int32"))),
        token_bytes,
        end_id=None if end_id is None else int(end_id),
        token_id=dict(ids).get,
        names={key: name for key, name in names.items() if isinstance(name, str)},
    )
    rules = [type(tokenizer).__name__, sorted(ids.items()), list(merges or ()), end_id]
    rules.append(vocabulary.encode(_PROBE).tolist())
    return dataclasses.replace(vocabulary, fingerprint=json_digest(rules)[:32])
