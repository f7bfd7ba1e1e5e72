"""Text to token ids and back: bytes, and tokenizers that are objects of KerasHub."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from keras_idea.files import json_digest

if TYPE_CHECKING:
    import keras_hub

#: Token ids `(tokens,)`.
Ids: TypeAlias = Sequence[int] | np.ndarray

# Characters tokenized at once: a tokenizer needs some 100 bytes of memory for each.
_CHUNK = 1 << 17
# Tokenized once, to tell apart tokenizers that differ in their rules alone.
_PROBE = "The  quick brown-fox's\t42.5 naïve ☃ 北京 🎉\r\n<s></s><|endoftext|> f(x):"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Converts text to token ids and back.

    Args:
        encode: function. Takes a str and returns an int32 array `(tokens,)`.
        decode: function. Takes an int array `(tokens,)` and returns a str.
        token_bytes: float array `(vocabulary,)`. The bytes of text per id: none for
            special tokens.
        end_id: int or None. The token that ends a document. Defaults to None.
        fingerprint: str or None. Equal on every machine for tokenizers that give the
            same ids. None means that it is not known. Defaults to None.
        encode_batch: function or None. Takes a list of str and returns a list of int
            arrays. None calls `encode` one by one. Defaults to None.
        token_id: function or None. Takes the name of a token, such as "<s>", and
            returns its id, or None if there is no such token. Chat templates need it.
            Defaults to None.
    """

    encode: Callable[[str], np.ndarray]
    decode: Callable[[Ids], str]
    token_bytes: np.ndarray
    end_id: int | None = None
    fingerprint: str | None = None
    encode_batch: Callable[[Sequence[str]], list[np.ndarray]] | None = None
    token_id: Callable[[str], int | None] | None = None

    @property
    def vocabulary_size(self) -> int:
        """int, one more than the largest id."""
        return len(self.token_bytes)

    def encode_all(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encodes several texts.

        Args:
            texts: list of str. The texts.

        Returns:
            list of int arrays `(tokens,)`.
        """
        if self.encode_batch is not None:
            return self.encode_batch(texts)
        return [self.encode(text) for text in texts]


def byte_vocabulary(end: bool = False) -> Vocabulary:
    """Makes the vocabulary of the 256 bytes, each its own id.

    Args:
        end: bool. Whether a 257th id ends a document, as packed documents need it.
            Defaults to False.

    Returns:
        `Vocabulary`.

    Example:
    >>> byte_vocabulary().encode("a b")
    array([97, 32, 98], dtype=int32)
    """

    def decode(ids: Ids) -> str:
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")

    return Vocabulary(
        encode=lambda text: np.frombuffer(text.encode(), "uint8").astype("int32"),
        decode=decode,
        token_bytes=np.array([1.0] * 256 + [0.0] * bool(end)),
        end_id=256 if end else None,
        fingerprint=fingerprint_of("bytes", bool(end)),
        encode_batch=lambda texts: [np.frombuffer(t.encode(), "uint8") for t in texts],
    )


def tokenizer_vocabulary(tokenizer: "keras_hub.tokenizers.Tokenizer") -> Vocabulary:
    """Makes the vocabulary of a KerasHub tokenizer.

    Args:
        tokenizer: `keras_hub` tokenizer. Byte-level BPE or SentencePiece.

    Returns:
        `Vocabulary`, whose `end_id` is the tokenizer's `end_token_id`.

    Example:
    >>> vocabulary = tokenizer_vocabulary(lm.preprocessor.tokenizer)
    """

    def encode(text: str) -> np.ndarray:
        chunks = [text[i : i + _CHUNK] for i in range(0, len(text), _CHUNK)]
        ids = [np.asarray(tokenizer.tokenize(chunk), "int32") for chunk in chunks]
        return np.concatenate(ids or [np.zeros(0, "int32")])

    def decode(ids: Ids) -> str:
        return str(tokenizer.detokenize(np.asarray(ids, "int32")))

    end_id = getattr(tokenizer, "end_token_id", None)
    if getattr(tokenizer, "merges", None) is not None:
        learnt: list = [sorted(tokenizer.vocabulary.items()), list(tokenizer.merges)]
        ids = tokenizer.vocabulary
        # Byte-level BPE: a character is a byte. The ids may have gaps.
        sizes = {i: len(token) for token, i in tokenizer.vocabulary.items()}
    else:
        learnt = list(tokenizer.get_vocabulary())
        ids = {piece: i for i, piece in enumerate(learnt)}
        sizes = dict(enumerate(map(piece_bytes, learnt)))
    token_bytes = np.zeros(max(sizes) + 1)
    token_bytes[list(sizes)] = list(sizes.values())
    special = [*tokenizer.special_tokens]
    special += getattr(tokenizer, "unsplittable_tokens", None) or ()
    token_bytes[[ids[token] for token in special if token in ids]] = 0
    return Vocabulary(
        encode,
        decode,
        token_bytes,
        end_id=None if end_id is None else int(end_id),
        fingerprint=fingerprint_of(
            type(tokenizer).__name__, learnt, end_id, encode(_PROBE).tolist()
        ),
        token_id=dict(ids).get,
    )


def fingerprint_of(*parts: Any) -> str:
    """A short hash of JSON-serializable values, the same on every machine."""
    return json_digest(parts)[:32]


def piece_bytes(piece: str) -> int:
    """Bytes of text that a SentencePiece piece, "▁the" or "<0x41>", stands for."""
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return 1
    return len(piece.replace("▁", " ").encode())
