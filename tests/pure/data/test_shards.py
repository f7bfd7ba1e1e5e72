"""A folder that is whole or not there, and what killed builds leave."""

import os
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_idea.lm.data.tokens.shards import (
    ShardWriter,
    new_folder,
)


@settings(deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(0, 30), max_size=10), shard_tokens=st.integers(5, 40))
def test_shards_hold_the_stream(tmp_path_factory, sizes, shard_tokens):
    folder = tmp_path_factory.mktemp("shards")
    stream = np.arange(sum(sizes), dtype="<u4")
    writer = ShardWriter(folder, stream.dtype, shard_tokens)
    for part in np.split(stream, np.cumsum(sizes)):
        writer.write(part)
    writer.close()
    tokens = [shard["tokens"] for shard in writer.shards]
    assert sum(tokens) == writer.tokens == len(stream)
    assert all(size == shard_tokens for size in tokens[:-1])
    assert len(list(folder.iterdir())) == len(tokens)
    found = [np.fromfile(folder / s["name"], stream.dtype) for s in writer.shards]
    np.testing.assert_array_equal(np.concatenate([*found, stream[:0]]), stream)


def test_a_folder_appears_at_once(tmp_path):
    path = tmp_path / "deep" / "cache"
    with new_folder(path) as folder:
        (folder / "a").write_text("a")
        assert not path.exists() and folder.name.startswith(".")
    assert [p.name for p in path.iterdir()] == ["a"]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt("no")])
def test_nothing_is_left_by_an_error(tmp_path, error):
    with pytest.raises(type(error), match="no"):
        with new_folder(tmp_path / "cache") as folder:
            (folder / "a").write_text("a")
            raise error
    assert list(tmp_path.iterdir()) == []


def test_the_first_of_two_gives_it(tmp_path):
    path = tmp_path / "cache"
    with new_folder(path) as one:
        (one / "a").write_text("one")
        with new_folder(path) as other:
            assert other != one
            (other / "a").write_text("other")
    assert (path / "a").read_text() == "other"
    assert list(tmp_path.iterdir()) == [path]


def test_another_error_of_the_renaming_is_not_swallowed(tmp_path):
    (tmp_path / "cache").write_text("a file stands in the way")
    with pytest.raises(NotADirectoryError, match="cache"):
        with new_folder(tmp_path / "cache"):
            pass
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]


def test_abandoned_folders_are_removed_and_live_ones_are_not(tmp_path):
    """Also a live one of another host, whose locks are not seen here."""
    dead, live = tmp_path / ".tokens-1-abc.tmp", tmp_path / ".tokens-2-abc.tmp"
    old = time.time() - 7200
    for folder in (dead, live):
        folder.mkdir()
        for name in (".lock", "shard-00000.bin"):
            (folder / name).write_text("process 1 on another-host")
            os.utime(folder / name, (old, old))
        os.utime(folder, (old, old))
    os.utime(live / "shard-00000.bin")  # it is still written
    with new_folder(tmp_path / "cache") as own:
        assert own.exists() and live.exists() and not dead.exists()
