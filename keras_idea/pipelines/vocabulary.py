"""How a run's text becomes token ids, and ids become text again."""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

# Characters tokenized at once: a tokenizer needs some 100 bytes of memory for each.
_CHUNK = 1 << 17


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Text to token ids and back.

    Args:
        encode: function of a str that returns an int32 array `(tokens,)`.
        decode: function of an int array `(tokens,)` that returns a str.
        token_bytes: float array `(vocabulary,)`, the bytes of text each id stands
            for.
    """

    encode: Callable
    decode: Callable
    token_bytes: np.ndarray


def byte_vocabulary():
    """The 256 bytes, each its own id.

    Returns:
        `Vocabulary`.

    Example:
    >>> byte_vocabulary().encode("a b")
    array([97, 32, 98], dtype=int32)
    """
    return Vocabulary(
        encode=lambda text: np.frombuffer(text.encode(), "uint8").astype("int32"),
        decode=lambda ids: bytes(list(ids)).decode("utf-8", errors="replace"),
        token_bytes=np.ones(256),
    )


def tokenizer_vocabulary(tokenizer):
    """The vocabulary of a KerasHub tokenizer.

    Args:
        tokenizer: a `keras_hub` tokenizer, byte-level BPE or SentencePiece.

    Returns:
        `Vocabulary`.

    Example:
    >>> vocabulary = tokenizer_vocabulary(lm.preprocessor.tokenizer)
    """

    def encode(text):
        chunks = [text[i : i + _CHUNK] for i in range(0, len(text), _CHUNK)]
        ids = [np.asarray(tokenizer.tokenize(chunk), "int32") for chunk in chunks]
        return np.concatenate(ids or [np.zeros(0, "int32")])

    def decode(ids):
        return str(tokenizer.detokenize(np.asarray(ids, "int32")))

    return Vocabulary(encode, decode, _token_bytes(tokenizer))


def _token_bytes(tokenizer):
    """Float array `(vocabulary,)`: the bytes of text that each id stands for."""
    if getattr(tokenizer, "merges", None) is not None:
        # Byte-level BPE: a character is a byte. The ids may have gaps.
        sizes = {i: len(token) for token, i in tokenizer.vocabulary.items()}
    else:
        sizes = dict(enumerate(map(_piece_bytes, tokenizer.get_vocabulary())))
    token_bytes = np.zeros(max(sizes) + 1)
    token_bytes[list(sizes)] = list(sizes.values())
    return token_bytes


def _piece_bytes(piece):
    """Bytes of text that a SentencePiece piece stands for."""
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return 1
    return len(piece.replace("▁", " ").encode())
