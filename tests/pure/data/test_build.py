"""The cache's making: parallel, with a bar, atomic, killed, twice at once."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from keras_idea.data import (
    BadRecordError,
    TextSource,
    TokenCache,
    build_cache,
    load_vocabulary,
)
from keras_idea.errors import CacheError, TextError
from keras_idea.lm.data.tokens import build
from tests.support import SUPPORT
from tests.support.text_files import TEXTS, huggingface_file, jsonl, write, zst

SCRIPT = SUPPORT / "slow_build.py"
ROOT = SCRIPT.parents[2]
DOCUMENTS = [f"document {i}: {TEXTS[i % 4]}" * (1 + i % 7) for i in range(300)]
BYTES = load_vocabulary("bytes")


def stream_of(documents):
    return [token for text in documents for token in [*text.encode(), 256]]


@pytest.fixture
def source(tmp_path):
    """Two files of 150 documents."""
    files = {
        "a.jsonl": jsonl(DOCUMENTS[:150]),
        "b.jsonl.zst": zst(jsonl(DOCUMENTS[150:]), frames=3),
    }
    return TextSource(write(tmp_path / "source", files))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.mark.parametrize("workers", [1, 2, 5, None])
@pytest.mark.parametrize("chunk", [1, 1000, 10**9])
def test_tokens_do_not_depend_on_the_threads(
    source, folder, monkeypatch, workers, chunk
):
    monkeypatch.setattr(build, "_CHUNK", chunk)
    cache = build_cache(source, BYTES, folder, workers, shard_tokens=999)
    np.testing.assert_array_equal(cache[:], stream_of(DOCUMENTS))
    assert cache.index["documents"] == 300 and cache.index["end_id"] == 256


def test_a_tokenizer_of_a_library(source, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_CHUNK", 500)
    vocabulary = load_vocabulary(huggingface_file(tmp_path / "tokenizer.json"))
    cache = build_cache(source, vocabulary, folder, workers=4)
    texts = [vocabulary.decode(p) for p in np.split(cache[:], _ends(cache, 0))[:-1]]
    assert texts == DOCUMENTS


def _ends(cache, end_id):
    return np.flatnonzero(cache[:] == end_id) + 1


def test_many_ids_take_four_bytes(source, folder):
    wide = dataclasses.replace(BYTES, token_bytes=np.ones(65_537), fingerprint="wide")
    assert build_cache(source, wide, folder).dtype == np.dtype("<u4")
    full = dataclasses.replace(BYTES, token_bytes=np.ones(65_536), fingerprint="full")
    assert build_cache(source, full, folder).dtype == np.dtype("<u2")


class TestOnce:
    def test_the_second_time_it_is_read(self, source, folder):
        def refuse(texts):
            raise AssertionError("tokenized again")

        cache = build_cache(source, BYTES, folder)
        lazy = dataclasses.replace(BYTES, encode_batch=refuse)
        assert build_cache(source, lazy, folder).path == cache.path

    def test_what_changes_makes_another(self, source, folder, tmp_path):
        paths = [build_cache(source, BYTES, folder).path]
        other = load_vocabulary(huggingface_file(tmp_path / "tokenizer.json"))
        paths += [build_cache(source, other, folder).path]
        other = dataclasses.replace(BYTES, end_id=0)
        paths += [build_cache(source, other, folder).path]
        write(source.paths[0], {"c.txt": b"one more"})
        cache = build_cache(source, BYTES, folder)
        assert cache.index["documents"] == 301
        paths += [cache.path]
        assert len(set(paths)) == 4 == len(list(folder.iterdir()))

    def test_a_damaged_one_is_not_used(self, source, folder):
        cache = build_cache(source, BYTES, folder)
        shard = cache.path / "shard-00000.bin"
        shard.write_bytes(b"\0" * shard.stat().st_size)
        with pytest.raises(CacheError, match="shard-00000.bin has other contents"):
            build_cache(source, BYTES, folder)
        shard.unlink()
        with pytest.raises(CacheError, match="shard-00000.bin is missing"):
            build_cache(source, BYTES, folder, verify="sizes")


class TestRefused:
    def test_bad_records_by_the_source(self, source, folder):
        write(source.paths[0], {"c.jsonl": b'{"text": 5}\n'})
        with pytest.raises(BadRecordError, match="c.jsonl, line 1: not a string"):
            build_cache(source, BYTES, folder)
        assert list(folder.iterdir()) == []
        skipping = dataclasses.replace(source, on_bad="skip")
        cache = build_cache(skipping, BYTES, folder)
        assert cache.index["bad_records"] == {"not_a_string": 1}
        assert len(cache) == len(stream_of(DOCUMENTS))

    def test_a_truncated_file(self, source, folder):
        path = source.paths[0] / "b.jsonl.zst"
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(TextError, match="b.jsonl.zst.*truncated.*documents of it"):
            build_cache(dataclasses.replace(source, on_bad="skip"), BYTES, folder)
        assert list(folder.iterdir()) == []

    def test_nothing_to_train_on(self, tmp_path, folder):
        write(tmp_path, {"a.jsonl": b"", "b.txt": b" "})
        with pytest.raises(TextError, match="no document.*0 documents, 1 empty skip"):
            build_cache(TextSource(tmp_path, on_bad="skip"), BYTES, folder)

    def test_a_text_that_changes_meanwhile(self, source, folder):
        def encode_batch(texts):
            write(source.paths[0], {"c.txt": b"one more"})
            return BYTES.encode_batch(texts)

        changing = dataclasses.replace(BYTES, encode_batch=encode_batch)
        with pytest.raises(TextError, match="The text changed while it was read"):
            build_cache(source, changing, folder)
        assert list(folder.iterdir()) == []

    @pytest.mark.parametrize("wrong", [-1, 257, 70_000])
    def test_an_id_that_is_none(self, source, folder, wrong):
        strange = dataclasses.replace(BYTES, encode_batch=lambda texts: [[5, wrong]])
        with pytest.raises(TextError, match=f"gave ids .*{wrong}.* has 0 to 256"):
            build_cache(source, strange, folder)
        assert list(folder.iterdir()) == []

    def test_an_error_of_the_tokenizer(self, source, folder, monkeypatch):
        monkeypatch.setattr(build, "_CHUNK", 100)
        left = [3]

        def encode_batch(texts):
            left[0] -= 1
            if not left[0]:
                raise RuntimeError("out of order")
            return BYTES.encode_batch(texts)

        failing = dataclasses.replace(BYTES, encode_batch=encode_batch)
        threads = threading.active_count()  # earlier tests may have left some
        with pytest.raises(RuntimeError, match="out of order"):
            build_cache(source, failing, folder)
        assert list(folder.iterdir()) == [] and threading.active_count() <= threads

    @pytest.mark.parametrize(
        "options, match",
        [
            ({"workers": 0}, "`workers` must be an integer >= 1.*=0"),
            ({"shard_tokens": 0}, "`shard_tokens` must be an integer >= 1"),
            ({"verify": "no"}, "`verify` must be one of"),
        ],
    )
    def test_bad_argument(self, source, folder, options, match):
        with pytest.raises(ValueError, match=match):
            build_cache(source, BYTES, folder, **options)


def test_a_bar_shows_tokens_and_bad_records(source, folder, capfd):
    write(source.paths[0], {"c.jsonl": b"{"})
    skipping = dataclasses.replace(source, on_bad="skip")
    build_cache(skipping, BYTES, folder, progress=True)
    shown = capfd.readouterr().err
    assert "tokenizing" in shown and "M tokens" in shown
    build_cache(source.__class__(source.paths[0] / "a.jsonl"), BYTES, folder)
    assert capfd.readouterr().err == ""


def start(source, folder, seconds, builders):
    command = [sys.executable, SCRIPT, source.paths[0], folder, seconds, builders]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment
    )


def test_killed_in_the_middle_and_made_again(source, folder):
    process = start(source, folder, 0.01, builders=1)
    while not list(folder.glob(".*/shard-00003.bin")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    [left] = folder.iterdir()
    assert left.name.startswith(".") and len(list(left.glob("shard-*"))) < 30
    with pytest.raises(CacheError, match="No cache of tokens at .*no index.json"):
        TokenCache(left)
    # An hour later, nobody is about to write to it.
    for path in (*left.iterdir(), left):
        os.utime(path, (0, 0))
    cache = build_cache(source, BYTES, folder, shard_tokens=2000)
    np.testing.assert_array_equal(cache[:], stream_of(DOCUMENTS))
    assert list(folder.iterdir()) == [cache.path]


def test_two_processes_at_once(source, folder):
    # Neither tokenizes before both have begun.
    processes = [start(source, folder, 0.002, builders=2) for _ in range(2)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert printed[0] == printed[1]
    cache = TokenCache(printed[0].split()[0])
    np.testing.assert_array_equal(cache[:], stream_of(DOCUMENTS))
    assert list(folder.iterdir()) == [cache.path]
