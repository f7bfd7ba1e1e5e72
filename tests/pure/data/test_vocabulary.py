"""Tokenizers that are objects of KerasHub, as vocabularies of a cache."""

import numpy as np
import pytest

from keras_idea.data import (
    Documents,
    TextSource,
    build_cache,
    byte_vocabulary,
    load_vocabulary,
    tokenizer_vocabulary,
)
from keras_idea.errors import TextError
from keras_idea.lm.data.make_tokenizer import make_tokenizer
from keras_idea.lm.data.tokens import build
from tests.support.text_files import TEXTS, jsonl, write

TRAINING_TEXT = "\n".join(TEXTS) * 9
KINDS = [("llama3", "bytes"), ("llama3", "bpe"), ("gemma", "sentencepiece")]


def make(family, kind, text=TRAINING_TEXT):
    size = None if kind == "bytes" else 300
    return make_tokenizer(family, kind, text, size)


@pytest.mark.parametrize("family, kind", KINDS)
def test_a_keras_hub_tokenizer_makes_a_cache(tmp_path, family, kind):
    tokenizer = make(family, kind)
    vocabulary = load_vocabulary(tokenizer)
    assert vocabulary.end_id == tokenizer.end_token_id
    assert vocabulary.vocabulary_size == tokenizer.vocabulary_size()
    write(tmp_path, {"a.jsonl": jsonl(TEXTS)})
    cache = build_cache(TextSource(tmp_path), vocabulary, tmp_path / "cache")
    by_hand = [
        np.append(tokenizer.tokenize(text), tokenizer.end_token_id) for text in TEXTS
    ]
    np.testing.assert_array_equal(cache[:], np.concatenate(by_hand))


@pytest.mark.parametrize("family, kind", KINDS)
def test_threads_give_the_same_ids(tmp_path, monkeypatch, family, kind):
    monkeypatch.setattr(build, "_CHUNK", 200)
    texts = [f"{text} {i}" for i in range(25) for text in TEXTS]
    source = TextSource(write(tmp_path / "text", {"a.jsonl": jsonl(texts)}))
    found = [
        build_cache(source, load_vocabulary(make(family, kind)), tmp_path / str(n), n)
        for n in (1, 6)
    ]
    np.testing.assert_array_equal(found[0][:], found[1][:])


def test_fingerprints_differ_where_tokenizers_do():
    made = [make(*kind) for kind in KINDS]
    made += [make("llama3", "bpe", "another text, of other words " * 30)]
    found = [tokenizer_vocabulary(tokenizer).fingerprint for tokenizer in made]
    assert len(set(found)) == len(found)
    again = [tokenizer_vocabulary(make(*kind)).fingerprint for kind in KINDS]
    assert again == found[:3]


def test_bytes_have_an_end_only_where_it_is_asked_for():
    plain, ended = byte_vocabulary(), byte_vocabulary(end=True)
    assert (plain.vocabulary_size, plain.end_id) == (256, None)
    assert (ended.vocabulary_size, ended.end_id) == (257, 256)
    assert ended.decode([97, 256, 98]) == "ab" and ended.token_bytes[256] == 0
    assert plain.fingerprint != ended.fingerprint


def test_a_cache_needs_an_end_and_a_fingerprint(tmp_path):
    write(tmp_path, {"a.txt": b"abc"})
    with pytest.raises(ValueError, match="`vocabulary` needs an `end_id`.*=None, "):
        build_cache(TextSource(tmp_path), byte_vocabulary(), tmp_path / "cache")
    tokenizer = make("llama3", "bytes")
    tokenizer.end_token_id = None
    with pytest.raises(TextError, match="no token that ends a document"):
        load_vocabulary(tokenizer)


@pytest.mark.parametrize("family, kind", KINDS)
def test_documents_hold_the_bytes_of_their_texts(tmp_path, family, kind):
    """The token that ends a document stands for none, whatever its own text is."""
    write(tmp_path, {"a.jsonl": jsonl(TEXTS)})
    documents = Documents(TextSource(tmp_path), tmp_path / "cache")
    corpus = documents.tokenized(load_vocabulary(make(family, kind)))
    ids = np.concatenate([corpus.train[:], corpus.validation[:]])
    counted = corpus.bytes_per_token(ids) * len(ids)
    assert round(counted, 6) == sum(len(text.encode()) for text in TEXTS)
