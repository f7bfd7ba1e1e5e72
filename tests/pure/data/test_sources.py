"""Documents of every format and folder, in a known order, and what tells them apart."""

import os

import pytest

from keras_idea.data import ReadLog, TextSource
from keras_idea.errors import TextError
from tests.support.text_files import TEXTS, gz, jsonl, parquet, write, zst

FORMATS = {
    "a.jsonl": jsonl(TEXTS),
    "a.ndjson": jsonl(TEXTS).replace(b"\n", b"\r\n\r\n"),
    "a.jsonl.gz": gz(jsonl(TEXTS)),
    "a.jsonl.zst": zst(jsonl(TEXTS)),
    "frames.jsonl.zst": zst(jsonl(TEXTS), frames=7),
    "mark.jsonl": b"\xef\xbb\xbf" + jsonl(TEXTS).rstrip(b"\n"),
    "a.JSONL": jsonl(TEXTS),
    "a.parquet": parquet({"id": [1, 2, 3, 4], "text": TEXTS}),
    "bytes.parquet": parquet({"text": [text.encode() for text in TEXTS]}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_documents(tmp_path, name):
    write(tmp_path, FORMATS)
    log = ReadLog()
    assert list(TextSource(tmp_path / name).documents(log)) == TEXTS
    assert log.documents == 4 and not log.bad
    assert log.bytes_read == (tmp_path / name).stat().st_size
    assert list(TextSource(tmp_path / name)) == TEXTS


@pytest.mark.parametrize(
    "split, expected",
    [
        ("file", ["one\ntwo\r\n\n \n\nthree\n\n"]),
        ("paragraphs", ["one\ntwo", "three"]),
        ("lines", ["one", "two", "three"]),
    ],
)
@pytest.mark.parametrize(
    "name, pack", [("a.txt", bytes), ("a.md.zst", zst), ("a.txt.gz", gz)]
)
def test_text_is_split_as_asked(tmp_path, split, expected, name, pack):
    text = b"\xef\xbb\xbfone\ntwo\r\n\n \n\nthree\n\n"
    write(tmp_path, {name: pack(text)})
    assert list(TextSource(tmp_path / name, split=split)) == expected


def test_text_that_does_not_end_in_a_new_line(tmp_path):
    write(tmp_path, {"a.txt": b"one\n\ntwo\nthree"})
    assert list(TextSource(tmp_path, split="paragraphs")) == ["one", "two\nthree"]
    assert list(TextSource(tmp_path, split="lines")) == ["one", "two", "three"]


def test_a_folder_is_read_in_sorted_order(tmp_path):
    files = {
        "b/2.jsonl": jsonl(["b2"]),
        "b/10.jsonl.zst": zst(jsonl(["b10"])),
        "a.txt": b"a",
        "c.parquet": parquet({"text": ["c"]}),
        ".git/x.txt": b"hidden",
        "b/.hidden.txt": b"hidden",
        "picture.png": b"\0",
    }
    write(tmp_path, files)
    assert list(TextSource(tmp_path)) == ["a", "b10", "b2", "c"]
    assert list(TextSource((tmp_path / "c.parquet", tmp_path / "b"))) == [
        "c",
        "b10",
        "b2",
    ]


def test_pattern_chooses_files_and_reads_unknown_ones_as_text(tmp_path):
    write(tmp_path, {"x/a.py": b"a = 1", "b.py": b"b = 2", "c.txt": b"c"})
    assert list(TextSource(tmp_path, pattern="*.py")) == ["b = 2", "a = 1"]
    assert list(TextSource(tmp_path, pattern="x/*")) == ["a = 1"]
    assert list(TextSource(tmp_path / "b.py")) == ["b = 2"]


def test_another_field(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(TEXTS, "content")})
    write(tmp_path, {"b.parquet": parquet({"content": TEXTS})})
    assert list(TextSource(tmp_path, field="content")) == TEXTS * 2


class TestKey:
    """What makes another cache, and what does not."""

    def test_files_and_options_change_it(self, tmp_path):
        write(tmp_path, {"a.txt": b"abc", "b.txt": b"b"})
        keys = [TextSource(tmp_path).key()]
        keys += [TextSource(tmp_path, split="lines").key()]
        keys += [TextSource(tmp_path, pattern="a*").key()]
        write(tmp_path, {"a.txt": b"abcd"})
        keys += [TextSource(tmp_path).key()]
        write(tmp_path, {"c.txt": b"c"})
        keys += [TextSource(tmp_path).key()]
        os.utime(tmp_path / "c.txt", ns=(1, 1))
        keys += [TextSource(tmp_path).key()]
        assert all(a != b for i, a in enumerate(keys) for b in keys[:i])
        assert TextSource(tmp_path).key() == keys[-1]

    def test_by_contents_it_depends_on_nothing_else(self, tmp_path):
        files = {"a.txt": b"abc", "b.txt": b"b"}
        one, other = write(tmp_path / "1", files), write(tmp_path / "2", files)
        os.utime(other / "a.txt", ns=(1, 1))
        assert TextSource(one).key() != TextSource(other).key()
        key = TextSource(one, hash_contents=True).key()
        assert key == TextSource(other, hash_contents=True).key()
        write(other, {"a.txt": b"abd"})
        assert key != TextSource(other, hash_contents=True).key()


class TestRefused:
    def test_missing(self, tmp_path):
        with pytest.raises(TextError, match="no such file or folder .seen from"):
            TextSource(tmp_path / "nowhere")

    def test_nothing_to_read(self, tmp_path):
        write(tmp_path, {"a.png": b"\0", "b.csv": b"a,b"})
        with pytest.raises(
            TextError, match=r"of its 2 files none is of \.txt.*pattern"
        ):
            TextSource(tmp_path)
        with pytest.raises(TextError, match=r"of its 2 files none is of \*\.py"):
            TextSource(tmp_path, pattern="*.py")
        with pytest.raises(TextError, match="`paths` is empty"):
            TextSource(())

    @pytest.mark.parametrize(
        "options, match",
        [
            (
                {"split": "words"},
                "`split` must be one of 'file', 'paragraphs'.*'words'",
            ),
            ({"on_bad": "ignore"}, "`on_bad` must be one of 'refuse', 'skip'"),
            ({"max_characters": 0}, "`max_characters` must be an integer >= 1.*=0"),
        ],
    )
    def test_bad_option(self, tmp_path, options, match):
        write(tmp_path, {"a.txt": b"a"})
        with pytest.raises(ValueError, match=match):
            TextSource(tmp_path, **options)
