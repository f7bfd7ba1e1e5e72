"""Vocabularies from tokenizer files: SentencePiece and Hugging Face `tokenizers`."""

import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from keras_idea.errors import ArgumentError, TextError
from keras_idea.lm.data.text.vocabulary import (
    Vocabulary,
    byte_vocabulary,
    fingerprint_of,
    piece_bytes,
    tokenizer_vocabulary,
)
from keras_idea.validation import require

if TYPE_CHECKING:
    import keras_hub
    import tokenizers

# Names of the token that ends a document, the usual ones of well-known models.
_END_TOKENS = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "[SEP]",
)


def load_vocabulary(
    tokenizer: "str | os.PathLike | keras_hub.tokenizers.Tokenizer",
    end_token: str | None = None,
) -> Vocabulary:
    """Loads the vocabulary of any supported tokenizer.

    Args:
        tokenizer: "bytes", path or `keras_hub` tokenizer. A path names a SentencePiece
            `.model`, a Hugging Face `tokenizer.json` or a folder with one of them.
        end_token: str or None. The token that ends a document, for tokenizer files
            only. None takes the tokenizer's own; of a `tokenizer.json` the first of the
            usual names that it has. Defaults to None.

    Returns:
        `Vocabulary` with an `end_id`.

    Raises:
        MissingPackage: If the package that reads the file is not installed.
        TextError: If there is no such file, it holds no tokenizer, or no token ends a
            document.

    Example:
    >>> vocabulary = load_vocabulary("tokenizer.model")
    >>> vocabulary.decode(vocabulary.encode("a text"))
    'a text'
    """
    own = not isinstance(tokenizer, (str, os.PathLike)) or tokenizer == "bytes"
    if own and end_token is not None:
        raise ArgumentError(
            "`end_token` is for the file of a tokenizer; 'bytes' and a KerasHub "
            f"tokenizer have one of their own. Received: {end_token!r}."
        )
    if isinstance(tokenizer, str) and tokenizer == "bytes":
        return byte_vocabulary(end=True)
    if not isinstance(tokenizer, (str, os.PathLike)):
        vocabulary = tokenizer_vocabulary(tokenizer)
        return vocabulary if vocabulary.end_id is not None else _no_end(tokenizer)
    path = pathlib.Path(tokenizer)
    if path.is_dir():
        names = ("tokenizer.json", "tokenizer.model")
        path = next((path / n for n in names if (path / n).is_file()), path)
    if not path.is_file():
        raise TextError(
            f"No tokenizer at {str(path)!r}. Give 'bytes', the path of a SentencePiece "
            ".model or a tokenizer.json, or a KerasHub tokenizer."
        )
    if path.suffix == ".json":
        return huggingface_vocabulary(path, end_token)
    return sentencepiece_vocabulary(path, end_token)


def sentencepiece_vocabulary(
    path: str | os.PathLike, end_token: str | None = None
) -> Vocabulary:
    """Loads the vocabulary of a SentencePiece model.

    Args:
        path: str or path. The `.model` file.
        end_token: str or None. The piece that ends a document. None takes the model's
            own end of sentence, usually `</s>`. Defaults to None.

    Returns:
        `Vocabulary`. No text is encoded to a control piece such as `</s>`.

    Raises:
        MissingPackage: If `sentencepiece` is not installed.
        TextError: If the file is not a SentencePiece model, or no piece ends a
            document.

    Example:
    >>> vocabulary = sentencepiece_vocabulary("tokenizer.model", end_token="</s>")
    >>> vocabulary.end_id
    2

    Reference: https://github.com/google/sentencepiece
    """
    sentencepiece = require("sentencepiece", f"The tokenizer {str(path)!r}")
    model = pathlib.Path(path).read_bytes()
    processor = sentencepiece.SentencePieceProcessor()
    try:
        loaded = bool(model) and processor.LoadFromSerializedProto(model)
    # Its binding's errors differ between versions.
    except Exception:
        loaded = False
    if not loaded:
        raise TextError(f"{str(path)!r} is no SentencePiece model. Give a .model file.")
    size, end_id = processor.vocab_size(), processor.eos_id()
    pieces = [processor.IdToPiece(i) for i in range(size)]
    if end_token is not None:
        end_id = pieces.index(end_token) if end_token in pieces else -1
    if end_id < 0:
        _no_end(path, end_token)

    def encode(text: str) -> np.ndarray:
        return np.asarray(processor.encode(text), "int32")

    def encode_batch(texts: Sequence[str]) -> list[np.ndarray]:
        # A thread for each call: the cache's builder makes several.
        return list(map(np.asarray, processor.encode(texts, num_threads=1)))

    silent = [processor.IsControl(i) or processor.IsUnknown(i) for i in range(size)]
    sizes = [0 if s else piece_bytes(p) for s, p in zip(silent, pieces, strict=True)]
    return Vocabulary(
        encode,
        decode=lambda ids: processor.decode([int(i) for i in ids]),
        token_bytes=np.array(sizes, float),
        end_id=end_id,
        fingerprint=fingerprint_of(
            "sentencepiece", hashlib.sha256(model).hexdigest(), end_id
        ),
        encode_batch=encode_batch,
    )


def huggingface_vocabulary(
    path: str | os.PathLike, end_token: str | None = None
) -> Vocabulary:
    """Loads the vocabulary of a Hugging Face `tokenizers` file.

    No special token is added or recognized in the text: "<|endoftext|>" in a document
    is encoded like any other text. Nothing is truncated or padded.

    Args:
        path: str or path. A `tokenizer.json`.
        end_token: str or None. The token that ends a document. None takes the first
            that exists of `<|endoftext|>`, `<|end_of_text|>`, `</s>`, `<eos>`,
            `<|im_end|>` and `[SEP]`. Defaults to None.

    Returns:
        `Vocabulary`. Its `token_bytes` are exact for byte-level BPE and for tokenizers
        with byte fallback.

    Raises:
        MissingPackage: If `tokenizers` is not installed.
        TextError: If the file is not such a file, or no token ends a document.

    Example:
    >>> vocabulary = huggingface_vocabulary("tokenizer.json", "<|endoftext|>")
    >>> vocabulary.end_id
    0

    Reference: https://huggingface.co/docs/tokenizers
    """
    tokenizers = require("tokenizers", f"The tokenizer {str(path)!r}")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    # The binding raises bare `Exception`.
    except Exception as error:
        raise TextError(
            f"{str(path)!r} is no tokenizer.json of Hugging Face: {error}"
        ) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True
    names = _END_TOKENS if end_token is None else (end_token,)
    end_ids = [tokenizer.token_to_id(name) for name in names]
    end_id = next((i for i in end_ids if i is not None), None)
    if end_id is None:
        _no_end(path, end_token)

    def encode_batch(texts: Sequence[str]) -> list[np.ndarray]:
        # `fast`: no offsets. Of one text too, because `encode` keeps the lock.
        found = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, "int32") for encoding in found]

    return Vocabulary(
        encode=lambda text: encode_batch([text])[0],
        decode=lambda ids: tokenizer.decode([int(i) for i in ids]),
        token_bytes=_huggingface_bytes(tokenizer),
        end_id=end_id,
        fingerprint=fingerprint_of("tokenizers", tokenizer.to_str(), end_id),
        encode_batch=encode_batch,
    )


def _huggingface_bytes(tokenizer: "tokenizers.Tokenizer") -> np.ndarray:
    """Float array `(vocabulary,)`: bytes of each token; special ones stand for none."""
    byte_level = "ByteLevel(" in repr(tokenizer.pre_tokenizer)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder()
    token_bytes = np.zeros(max(vocabulary.values()) + 1)
    for token, index in vocabulary.items():
        if index in added:
            text = "" if added[index].special else added[index].content
            token_bytes[index] = len(text.encode())
        else:
            token_bytes[index] = len(token) if byte_level else piece_bytes(token)
    return token_bytes


def _no_end(tokenizer: object, end_token: str | None = None) -> NoReturn:
    what = "no token that ends a document" if end_token is None else repr(end_token)
    missing = what if end_token is None else f"no token {what}"
    raise TextError(
        f"The tokenizer {str(tokenizer)!r} has {missing}. Name a token of its "
        "vocabulary with `end_token`."
    )
