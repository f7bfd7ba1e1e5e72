"""Tokenizers made for a run: every text comes back, and no byte is lost count of."""

import sys

import numpy as np
import pytest

from keras_idea.data import byte_vocabulary, tokenizer_vocabulary
from keras_idea.errors import ConfigError
from keras_idea.hub.families import HUB_FAMILIES
from keras_idea.lm.data.make_tokenizer import make_tokenizer

TRAINING_TEXT = (
    "def read_all(path):\n    with open(path) as file:\n        return file.read()\n"
    "# Grüße aus München: straße, 北京\n"
) * 30
TEXTS = {
    "code": "def f(x):\n\treturn x\n\n\n    # done  \n",
    "spaces": "   a  b \r\n  ",
    "other scripts": "naïve ☃ 北京 🎉 e\u0301 \ufb01 \u00a0\u2028\ufeff",
    "special tokens": "<s> </s> <unk> <pad> <0x41> <|endoftext|> <|im_end|> <bos>",
    "control characters": "\x00\x01\x7f",
    "unseen": "zzz QQQ ~~~ 0123456789",
    "trained on": TRAINING_TEXT,
}
MANY_CHARACTERS = "".join(map(chr, range(0x4E00, 0x5000)))
ROWS = {name: row.from_nothing for name, row in HUB_FAMILIES.items()}
FAMILIES_AND_KINDS = [
    (family, kind) for family, row in ROWS.items() for kind in ("bytes", row.tokenizer)
]


@pytest.fixture(scope="module")
def tokenizers():
    """Dict of (family, kind) to its tokenizer, trained to 300 tokens."""
    return {
        (family, kind): make_tokenizer(
            family, kind, TRAINING_TEXT, None if kind == "bytes" else 300
        )
        for family, kind in FAMILIES_AND_KINDS
    }


@pytest.mark.parametrize("family, kind", FAMILIES_AND_KINDS)
class TestEveryFamily:
    def test_text_comes_back(self, tokenizers, family, kind):
        tokenizer = tokenizers[family, kind]
        for text in TEXTS.values():
            assert tokenizer.detokenize(tokenizer.tokenize(text)) == text

    def test_it_is_the_familys_own_class(self, tokenizers, family, kind):
        tokenizer, special = tokenizers[family, kind], ROWS[family].special_tokens
        assert type(tokenizer).__module__.startswith("keras_hub.")
        assert type(tokenizer).__name__ == (f"{HUB_FAMILIES[family].prefix}Tokenizer")
        ids = [tokenizer.token_to_id(token) for token in special]
        assert len(set(ids)) == len(special)
        assert tokenizer.end_token in special

    def test_vocabulary_is_as_large_as_asked_for(self, tokenizers, family, kind):
        size = tokenizers[family, kind].vocabulary_size()
        expected = ROWS[family].smallest_vocabulary if kind == "bytes" else 300
        assert size == expected

    def test_every_byte_counts(self, tokenizers, family, kind):
        vocabulary = tokenizer_vocabulary(tokenizers[family, kind])
        silent = np.zeros(vocabulary.vocabulary_size, bool)
        silent[list(tokenizers[family, kind].special_token_ids)] = True
        assert (vocabulary.token_bytes[silent] == 0).all()
        for name, text in TEXTS.items():
            ids = vocabulary.encode(text)
            assert ids.dtype == "int32" and ids.max() < len(vocabulary.token_bytes)
            # A special token that is written in the text is none of its bytes.
            special = [vocabulary.decode([i]) for i in ids if silent[i]]
            assert name == "special tokens" or special == []
            size = len(text.encode()) - len("".join(special).encode())
            assert vocabulary.token_bytes[ids].sum() == size, name
            assert vocabulary.decode(ids) == text
            if kind == "bytes" and name != "special tokens":
                assert len(ids) == len(text.encode())

    def test_the_same_again(self, tokenizers, family, kind):
        size = None if kind == "bytes" else 300
        # From bytes, cut in the middle of the last character of a text.
        text = TRAINING_TEXT.encode() + "ü".encode()[:1]
        one, other = tokenizers[family, kind], make_tokenizer(family, kind, text, size)
        if ROWS[family].tokenizer == "bpe":
            assert one.vocabulary == other.vocabulary and one.merges == other.merges
            # Not in the order of a set, which no other process has.
            specials = list(ROWS[family].special_tokens)
            assert other.unsplittable_tokens == specials
        else:
            assert one.proto == other.proto


@pytest.mark.parametrize("family", ["qwen3", "mistral"])
def test_a_trained_tokenizer_needs_fewer_tokens(tokenizers, family):
    ids = tokenizers[family, ROWS[family].tokenizer].tokenize(TRAINING_TEXT)
    assert len(ids) < 0.8 * len(TRAINING_TEXT.encode())


def test_a_byte_is_its_own_id(tokenizers):
    ids = tokenizers["llama3", "bytes"].tokenize("Grüße\n")
    assert bytes(np.asarray(ids).tolist()).decode() == "Grüße\n"


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_a_short_text_has_fewer_merges(kind):
    family = "qwen" if kind == "bpe" else "phi3"
    size = make_tokenizer(family, kind, "a rose is a rose is a rose").vocabulary_size()
    assert ROWS[family].smallest_vocabulary < size < 320


@pytest.mark.parametrize("family", ["gemma", "qwen"])
@pytest.mark.parametrize("text", ["<bos><|endoftext|><pad> " * 50, "abcab" * 50])
def test_odd_texts_to_train_on(family, text):
    # One that spells out special tokens, and one without a space.
    kind = ROWS[family].tokenizer
    tokenizer = make_tokenizer(family, kind, text)
    for other in (text, "a b  c\n<bos> <|endoftext|>"):
        assert tokenizer.detokenize(tokenizer.tokenize(other)) == other


def test_long_texts_are_tokenized_in_chunks(tokenizers, monkeypatch):
    monkeypatch.setattr("keras_idea.lm.data.vocabulary.CHUNK", 7)
    vocabulary = tokenizer_vocabulary(tokenizers["llama3", "bpe"])
    ids = vocabulary.encode(TRAINING_TEXT)
    assert vocabulary.decode(ids) == TRAINING_TEXT
    assert vocabulary.encode("").shape == (0,)


def test_bytes_without_a_tokenizer():
    vocabulary = byte_vocabulary()
    ids = vocabulary.encode("Grüße")
    assert ids.tolist() == list("Grüße".encode()) and ids.dtype == "int32"
    assert vocabulary.decode(ids) == "Grüße"
    assert vocabulary.decode(ids[:3]) == "Gr\ufffd"
    assert vocabulary.token_bytes[ids].sum() == len(ids)


class TestRefused:
    @pytest.mark.parametrize(
        "arguments, match",
        [
            (("gpt5", "bytes", ""), "`family` must be one of 'llama', .*='gpt5'"),
            (("llama3", "words", ""), "`kind` must be one of 'bytes', 'bpe', 'sent"),
            (
                ("llama3", "sentencepiece", "text"),
                "`kind` must be 'bytes' or 'bpe' for 'llama3'.*='sentencepiece'",
            ),
            (
                ("phi3", "bpe", "text"),
                "`kind` must be 'bytes' or 'sentencepiece' for 'phi3': .*Phi3Tokenizer",
            ),
            (("llama3", "bytes", "", 300), "the byte-level one .* has 261 tokens"),
            (("qwen", "bpe", "text", 257), "must be above 257 for 'qwen'"),
            (("qwen", "bpe", " \n"), "trained on the run's text, but `text` is empty"),
            (
                ("llama", "sentencepiece", MANY_CHARACTERS, 300),
                "SentencePiece cannot make a vocabulary of 300 .* Increase vocab_size",
            ),
        ],
    )
    def test_arguments(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            make_tokenizer(*arguments)

    def test_without_keras_hub(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "keras_hub", None)
        with pytest.raises(ConfigError, match=r'pip install "keras-idea\[hub\]"'):
            make_tokenizer("llama3", "bytes", "")
