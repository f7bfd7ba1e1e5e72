"""Tokenizers made for a run, as objects of a KerasHub family's own class.

Each knows the 256 bytes, so any text becomes ids and comes back as it was. (To
SentencePiece, "▁" is a space.)
"""

import io
import json

import keras

from keras_idea._keras.hub_importers import byte_characters
from keras_idea._validation import check_choice, require
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES, NUM_BYTES
from keras_idea.hub.tokenizers import sentencepiece_model

TOKENIZERS = ("bytes", "bpe", "sentencepiece")
#: Tokens of a trained tokenizer of which no size is asked for.
DEFAULT_VOCABULARY_SIZE = 4096
# SentencePiece leaves out longer sentences, so that longer lines are cut.
_SENTENCE = 4000
_SPACE = "▁"


def make_tokenizer(
    family: str, kind: str, text: str | bytes, vocabulary_size: int | None = None
) -> keras.layers.Layer:
    """Makes a tokenizer of a family's own KerasHub class, for any text.

    "bytes" knows the 256 bytes and the special tokens. "bpe" and "sentencepiece" are
    trained on `text`, to `vocabulary_size` tokens (default 4096) or fewer.

    Example:
    >>> tokenizer = make_tokenizer("llama3", "bytes", text="")
    >>> tokenizer.detokenize(tokenizer.tokenize("def f():"))
    'def f():'
    """
    check_choice("family", family, tuple(HUB_FAMILIES))
    check_choice("kind", kind, TOKENIZERS)
    check_tokenizer(family, kind, vocabulary_size)
    keras_hub = require("keras_hub", "A KerasHub tokenizer", "hub", ConfigError)
    size = vocabulary_size or DEFAULT_VOCABULARY_SIZE
    if not isinstance(text, str):
        text = text.decode(errors="ignore")  # cut in the middle of a character
    if kind != "bytes" and not text.strip():
        raise ConfigError("`text` is empty. Give text to train a tokenizer on.")
    row = HUB_FAMILIES[family]
    special = row.special_tokens
    tokenizer_class = getattr(keras_hub.tokenizers, f"{row.prefix}Tokenizer")
    if row.tokenizer == "bpe":
        merges = [] if kind == "bytes" else _train_bpe(text, size - len(special))
        merged = [merge.replace(" ", "") for merge in merges]
        # A byte's id is the byte. Two merges may make the same token.
        tokens = dict.fromkeys([*byte_characters(), *merged, *special])
        return tokenizer_class(
            vocabulary={token: index for index, token in enumerate(tokens)},
            # KerasHub cannot look up in a table of no merges: a file's first line,
            # which it skips, stands for them.
            merges=["#version: 0.2", *merges],
            # Its own default is a set's order, another one in each process.
            unsplittable_tokens=list(special),
        )
    pieces = [_SPACE] if kind == "bytes" else _train_sentencepiece(text, size, special)
    return tokenizer_class(proto=_sentencepiece_model(pieces, special))


def check_tokenizer(
    family: str, kind: str, vocabulary_size: int | None = None, name: str = "kind"
) -> None:
    """Raises a `ConfigError` for a tokenizer that a family's class cannot read.

    `name` is what the message calls the argument `kind`.
    """
    row = HUB_FAMILIES[family]
    if kind not in ("bytes", row.tokenizer):
        raise ConfigError(
            f"`{name}` must be 'bytes' or {row.tokenizer!r} for {family!r}: its "
            f"KerasHub class reads no other. Received: {kind!r}."
        )
    least = row.smallest_vocabulary
    if vocabulary_size is not None and (kind == "bytes" or vocabulary_size <= least):
        raise ConfigError(
            f"`vocabulary_size` must be above {least}, the bytes and special tokens of "
            f"{family!r}, for a trained tokenizer. Received: {vocabulary_size}. Set "
            f"`{name}` to {row.tokenizer!r} and a larger size, or delete the size."
        )


def _train_bpe(text: str, size: int) -> list[str]:
    """Merges as KerasHub writes them, "a b", learnt from the text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # llama.cpp cuts numbers where KerasHub cuts none, so that digits stay single.
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(merge) for merge in merges]


def _train_sentencepiece(text: str, size: int, special: tuple[str, ...]) -> list[str]:
    """Pieces besides the bytes and the special tokens, the likelier first."""
    import sentencepiece

    model = io.BytesIO()
    lines = (
        line[start : start + _SENTENCE]
        for line in text.splitlines()
        for start in range(0, len(line), _SENTENCE)
    )
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            model_type="bpe",
            # Its own three special tokens are replaced by the family's.
            vocab_size=size - len(special) + 3,
            hard_vocab_limit=False,  # fewer, if the text has no more to merge
            byte_fallback=True,
            # The text as it is: nothing folded, stripped or put in front of it.
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,  # indentation counts
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"SentencePiece cannot make a vocabulary of {size} tokens from this text: "
            f"{str(error).split(']')[-1].strip()} Set another `vocabulary_size`, or "
            "the byte-level tokenizer."
        ) from None
    trained = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [
        trained.IdToPiece(i)
        for i in range(trained.vocab_size())
        if not (trained.IsControl(i) or trained.IsUnknown(i) or trained.IsByte(i))
    ]
    pieces = [piece for piece in pieces if piece not in special]
    # A text without spaces does not teach any; there is no byte for one.
    return pieces if _SPACE in pieces else [*pieces[:-1], _SPACE]


def _sentencepiece_model(pieces: list[str], special: tuple[str, ...]) -> bytes:
    """A SentencePiece model: special tokens, bytes, then pieces, the likelier first."""
    first = [(t, 0.0, "UNKNOWN" if t == "<unk>" else "CONTROL") for t in special]
    bytes_ = [(f"<0x{byte:02X}>", 0.0, "BYTE") for byte in range(NUM_BYTES)]
    # A piece's score is its place in merging.
    ranked = [(piece, -float(rank), "NORMAL") for rank, piece in enumerate(pieces)]
    return sentencepiece_model([*first, *bytes_, *ranked])
