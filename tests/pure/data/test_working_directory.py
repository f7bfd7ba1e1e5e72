"""Relative paths count from where they were given, whoever changes directory later."""

import pickle

import pytest

from keras_idea.data import (
    Documents,
    TextSource,
    TokenCache,
    build_cache,
    byte_vocabulary,
)
from keras_idea.lm.data.chat.chat_text import ChatText
from tests.support.text_files import jsonl, write

TEXTS = ["one", "two", "three"]


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Changes to a folder with other files of the same names."""
    write(tmp_path, {"texts/a.jsonl": jsonl(TEXTS)})
    write(tmp_path / "elsewhere", {"texts/a.jsonl": jsonl(["of another"])})
    monkeypatch.chdir(tmp_path)
    return lambda: monkeypatch.chdir(tmp_path / "elsewhere")


def test_a_text(elsewhere, tmp_path):
    source = TextSource("texts")
    assert [str(path) for path in source.files()] == ["texts/a.jsonl"]
    key = source.key()
    elsewhere()
    for same in (source, pickle.loads(pickle.dumps(source))):
        assert list(same) == TEXTS
        assert same.files() == [tmp_path / "texts/a.jsonl"]
        assert same.key() == key
    assert list(TextSource("texts")) == ["of another"]


def test_a_cache(elsewhere, tmp_path):
    vocabulary = byte_vocabulary(end=True)
    documents = Documents(TextSource("texts"), "cache")
    cache = build_cache(documents.source, vocabulary, "cache")
    elsewhere()
    assert TokenCache(cache.path).fingerprint == cache.fingerprint
    corpus = documents.tokenized(vocabulary)
    assert corpus.train.cache.path == cache.path
    assert [p.name for p in (tmp_path / "elsewhere").iterdir()] == ["texts"]
    chat = ChatText(TextSource("texts"), "cache", 8)
    assert chat.cache == tmp_path / "elsewhere/cache"
