"""Compressed files that are cut off or damaged are reported, never taken as shorter."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_idea.data import TextSource
from keras_idea.errors import TextError
from keras_idea.lm.data.text.file_streams import numbered_lines
from tests.support.text_files import gz, jsonl, parquet, write, zst

# Incompressible enough that a compressed file has several blocks.
DOCUMENTS = [f"{i} {i * i} {i**5 * 7919 % 1000003}" * 9 for i in range(4000)]
DATA = jsonl(DOCUMENTS)


def read_until_error(source):
    """Documents read before the error, and the error's text."""
    found = []
    with pytest.raises(TextError, match="Cannot read .* to its end: ") as caught:
        for text in source:
            found.append(text)
    return found, str(caught.value)


@pytest.mark.parametrize("frames", [1, 5])
@pytest.mark.parametrize("share", [0.999, 0.7, 0.3, 0.0001])
@pytest.mark.parametrize("on_bad", ["refuse", "skip"])
def test_a_truncated_zst_says_how_far_it_was_read(tmp_path, frames, share, on_bad):
    whole = zst(DATA, frames)
    cut = whole[: max(1, int(len(whole) * share))]
    write(tmp_path, {"a.jsonl": jsonl(["before"]), "b.jsonl.zst": cut})
    found, error = read_until_error(TextSource(tmp_path, on_bad=on_bad))
    assert found == ["before", *DOCUMENTS][: len(found)]
    assert f"{len(found) - 1:,} documents of it were read" in error
    assert "b.jsonl.zst" in error and "it is truncated" in error
    if share > 0.5:
        assert len(found) > 1000


def test_nothing_is_lost_of_a_zst_cut_between_frames(tmp_path):
    # That is a whole file too: nothing tells that there was more.
    whole = zst(jsonl(["a"])) + zst(jsonl(["b"]))
    write(tmp_path, {"a.jsonl.zst": whole[: len(zst(jsonl(["a"])))]})
    assert list(TextSource(tmp_path)) == ["a"]


DAMAGED = {
    "empty.jsonl.zst": (b"", "it is truncated"),
    "garbage.jsonl.zst": (b"no zstandard at all" * 9, "no sound Zstandard data"),
    "more.jsonl.zst": (zst(DATA) + b"garbage", "no sound Zstandard data"),
    "text.txt.zst": (zst(b"x" * 999)[:-4], "it is truncated"),
    "half.jsonl.gz": (gz(DATA)[:-2000], "ended before the end-of-stream"),
    "garbage.jsonl.gz": (b"no gzip" * 99, "Not a gzipped file"),
    "half.parquet": (parquet({"text": DOCUMENTS})[:-500], "no sound parquet file"),
    "garbage.parquet": (b"no parquet" * 99, "no sound parquet file"),
    "empty.parquet": (b"", "no sound parquet file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_reported_whatever_the_policy(tmp_path, name):
    content, reason = DAMAGED[name]
    write(tmp_path, {name: content})
    for on_bad in ("refuse", "skip"):
        found, error = read_until_error(TextSource(tmp_path / name, on_bad=on_bad))
        assert found == DOCUMENTS[: len(found)]
        assert name in error and reason in error
        assert f"{len(found):,} documents of it were read" in error


def test_a_flipped_byte_in_a_zst_with_a_checksum(tmp_path):
    import zstandard

    whole = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(DATA))
    whole[len(whole) // 2] ^= 1
    write(tmp_path, {"a.jsonl.zst": bytes(whole)})
    _, error = read_until_error(TextSource(tmp_path, on_bad="skip"))
    assert "no sound Zstandard data" in error


def test_a_file_that_may_not_be_read(tmp_path):
    write(tmp_path, {"a.txt": b"a"})
    source = TextSource(tmp_path / "a.txt")
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(TextError, match="of its 0 files none is"):
        list(source)


@settings(deadline=None)
@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.translate(None, b"\r\n"))),
    max_bytes=st.integers(1, 10),
    ends=st.booleans(),
)
def test_lines_are_those_of_a_plain_split(lines, max_bytes, ends):
    data = b"\n".join(lines) + (b"\n" if ends and lines else b"")
    data = b"x" + data
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    wanted = [
        (number, line if len(line) <= max_bytes else None)
        for number, line in enumerate(expected, 1)
    ]
    assert list(numbered_lines(io.BytesIO(data), max_bytes)) == wanted
