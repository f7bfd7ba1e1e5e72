"""A cache is read as one stream, and whatever is damaged in it is named."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_idea.data import TextSource, TokenCache, build_cache, load_vocabulary
from keras_idea.errors import CacheError
from tests.support.text_files import jsonl, write

STREAM = [token for i in range(40) for token in [*f"document {i}".encode(), 256]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A cache of 460 tokens in five shards."""
    folder = tmp_path_factory.mktemp("cache")
    write(folder, {"a.jsonl": jsonl([f"document {i}" for i in range(40)])})
    source, vocabulary = TextSource(folder), load_vocabulary("bytes")
    return build_cache(source, vocabulary, folder / "cache", shard_tokens=100).path


@pytest.fixture
def copy(path, tmp_path):
    return shutil.copytree(path, tmp_path / path.name)


def test_it_is_the_documents_with_their_ends(path):
    cache = TokenCache(path)
    assert len(cache) == len(STREAM) == cache.index["tokens"]
    assert cache.dtype == np.dtype("<u2") and len(cache.index["shards"]) == 5
    assert cache.index["documents"] == 40 and cache.index["bad_records"] == {}
    np.testing.assert_array_equal(cache[:], STREAM)


@settings(deadline=None)
@given(start=st.integers(-500, 500), stop=st.integers(-500, 500))
def test_slices_are_those_of_a_list(path, start, stop):
    cache = TokenCache(path, verify="sizes")
    found = cache[start:stop]
    assert found.dtype == cache.dtype and found.tolist() == STREAM[start:stop]


@pytest.mark.parametrize("place", [0, slice(0, 9, 2), [1, 2]])
def test_only_slices(path, place):
    with pytest.raises(TypeError, match="`TokenCache` takes slices of step 1"):
        TokenCache(path)[place]


def test_the_fingerprint_is_of_the_contents(path, copy, tmp_path):
    assert TokenCache(copy).fingerprint == TokenCache(path).fingerprint
    write(tmp_path, {"a.jsonl": jsonl(["another text"])})
    source, vocabulary = TextSource(tmp_path / "a.jsonl"), load_vocabulary("bytes")
    other = build_cache(source, vocabulary, tmp_path / "cache")
    assert other.fingerprint != TokenCache(path).fingerprint


class TestDamage:
    def refused(self, copy, match, verify="contents"):
        with pytest.raises(CacheError, match=f"{match}.*`build_cache`"):
            TokenCache(copy, verify)

    def test_a_flipped_bit_in_any_shard(self, path, tmp_path):
        for number in range(5):
            copy = shutil.copytree(path, tmp_path / str(number))
            name = f"shard-{number:05}.bin"
            data = bytearray((copy / name).read_bytes())
            data[len(data) // 2] ^= 4
            (copy / name).write_bytes(data)
            self.refused(copy, f"{name} has other contents.*Delete the folder")
            # That is what "sizes" does not see.
            assert len(TokenCache(copy, verify="sizes")) == len(STREAM)

    @pytest.mark.parametrize("verify", ["contents", "sizes"])
    def test_a_truncated_shard(self, copy, verify):
        shard = copy / "shard-00003.bin"
        shard.write_bytes(shard.read_bytes()[:-1])
        match = "shard-00003.bin has 199 bytes instead of 200"
        self.refused(copy, match, verify)

    @pytest.mark.parametrize("verify", ["contents", "sizes"])
    def test_a_missing_shard(self, copy, verify):
        (copy / "shard-00001.bin").unlink()
        self.refused(copy, "shard-00001.bin is missing", verify)

    def test_any_byte_of_the_index(self, copy):
        text = (copy / "index.json").read_text()
        for place in range(0, len(text), 37):
            # Another digit or letter; spaces between values do not matter.
            if text[place].isalnum():
                other = "7" if text[place] != "7" else "8"
                changed = text[:place] + other + text[place + 1 :]
                (copy / "index.json").write_text(changed)
                self.refused(copy, "index.json does not agree with its own sum")

    @pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"sum": 1}', "[" * 99999])
    def test_no_index_in_the_index(self, copy, text):
        (copy / "index.json").write_text(text)
        self.refused(copy, "index.json does not agree with its own sum")

    def test_another_format(self, copy):
        from keras_idea.lm.data.tokens.cache import write_index

        index = json.loads((copy / "index.json").read_text())
        del index["sum"]
        write_index(copy / "index.json", {**index, "format": 99})
        self.refused(copy, "index.json is of format 99")

    def test_no_cache(self, tmp_path):
        for folder in (tmp_path, tmp_path / "nowhere"):
            self.refused(folder, "No cache of tokens at .* it has no index.json")

    def test_verify(self, path):
        with pytest.raises(ValueError, match="`verify` must be one of 'contents', 's"):
            TokenCache(path, verify="no")
