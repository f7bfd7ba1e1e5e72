"""Every kind of bad record: refused with its place, or skipped, counted and logged."""

import json
import logging

import pytest

from keras_idea.data import BadRecordError, ReadLog, TextSource
from tests.support.text_files import parquet, write

GOOD = b'{"text": "good"}\n'
DEEP = b"[" * 200_000
HUGE = json.dumps({"text": "x" * 51}).encode()
# name: (the bad line of a JSON lines file, kind, what the message says of it)
LINES = {
    "cut off": (b'{"text": "good', "broken_json", "Unterminated string"),
    "not JSON": (b"text: good", "broken_json", "Expecting value"),
    "two values": (GOOD.strip() * 2, "broken_json", "Extra data"),
    "nested": (DEEP, "broken_json", "recursion"),
    "long number": (b'{"text": ' + b"1" * 5000 + b"}", "broken_json", "4300 digits"),
    "latin": ('{"text": "süß"}'.encode("latin-1"), "invalid_utf8", "byte 0xfc"),
    "half a pair": (rb'{"text": "a\ud83d b"}', "invalid_utf8", "surrogate"),
    "no field": (b'{"txt": "a", "url": "b"}', "missing_field", "among: txt, url"),
    "a list": (b'["text"]', "missing_field", "no object but a list"),
    "null": (b'{"text": null}', "not_a_string", "null"),
    "a number": (b'{"text": 5}', "not_a_string", "a int"),
    "empty": (b'{"text": ""}', "empty", "white space"),
    "blank": (rb'{"text": " \n\u3000\t"}', "empty", "white space"),
    "huge": (HUGE, "huge", "51 characters, allowed 50"),
    "endless": (b'{"text": "' + b"x" * 2_000_000, "huge", "a line over 1,049,176 by"),
}


@pytest.mark.parametrize("name", LINES)
class TestJsonLines:
    def source(self, folder, name, **options):
        bad = LINES[name][0]
        write(folder, {"a.jsonl": GOOD, "b.jsonl": GOOD + bad + b"\n" + GOOD})
        return TextSource(folder, max_characters=50, **options)

    def test_refused_with_file_and_line(self, tmp_path, name):
        _, kind, said = LINES[name]
        words = kind.replace("_", " ")
        documents = iter(self.source(tmp_path, name))
        assert [next(documents), next(documents)] == ["good"] * 2
        place = rf"b\.jsonl, line 2: {words}: .*{said}.*on_bad='skip'"
        with pytest.raises(BadRecordError, match=place) as caught:
            next(documents)
        error = caught.value
        assert (error.kind, error.line) == (kind, 2)
        assert error.path == str(tmp_path / "b.jsonl")

    def test_skipped_counted_and_logged(self, tmp_path, name, caplog):
        _, kind, _ = LINES[name]
        log = ReadLog("skip")
        with caplog.at_level(logging.WARNING, logger="keras_idea.data"):
            found = list(self.source(tmp_path, name, on_bad="skip").documents(log))
        assert found == ["good"] * 3 and log.documents == 3
        assert log.bad == {kind: 1}
        words = kind.replace("_", " ")
        [line] = caplog.messages
        assert line.startswith(f"{tmp_path / 'b.jsonl'}, line 2: {words}: skipped")
        assert log.summary() == f"3 documents, 1 {words} skipped"


# name: (split, the text, kind, the line, documents that are left)
TEXTS = {
    "empty file": ("file", b"", "empty", None, 0),
    "blank file": ("file", b" \n\t\n", "empty", None, 0),
    "latin file": ("file", b"a\nb\nc\xfcd\n", "invalid_utf8", 3, 0),
    "huge file": ("file", b"x" * 51, "huge", None, 0),
    "huge file, by its bytes": ("file", b"x" * 5000, "huge", None, 0),
    "latin line": ("lines", b"a\n\n\xfc\nd", "invalid_utf8", 3, 2),
    "huge line": ("lines", b"a\n" + b"x" * 51 + b"\nb\n", "huge", 2, 2),
    "endless line": ("lines", b"a\n" + b"x" * 500_000 + b"\nb\n", "huge", 2, 2),
    "latin paragraph": ("paragraphs", b"a\n\nb\n\xfc\n\nc", "invalid_utf8", 4, 2),
    "huge paragraph": ("paragraphs", b"a\n\n" + b"xy\n" * 30 + b"\nb", "huge", 3, 2),
    "endless paragraph": ("paragraphs", b"a\n\n" + b"x\n" * 999 + b"\nb", "huge", 3, 2),
    "endless line in one": ("paragraphs", b"a\n\n" + b"x" * 999, "huge", 3, 1),
}


@pytest.mark.parametrize("name", TEXTS)
class TestText:
    def source(self, folder, name, **options):
        split, text, *_ = TEXTS[name]
        write(folder, {"a.txt": text})
        return TextSource(folder, split=split, max_characters=50, **options)

    def test_refused_with_file_and_line(self, tmp_path, name):
        _, _, kind, line, _ = TEXTS[name]
        place = "a.txt" if line is None else f"a.txt, line {line}"
        match = rf"{place}: {kind.replace('_', ' ')}: "
        with pytest.raises(BadRecordError, match=match) as caught:
            list(self.source(tmp_path, name))
        assert (caught.value.kind, caught.value.line) == (kind, line)

    def test_skipped_and_counted(self, tmp_path, name):
        _, _, kind, _, left = TEXTS[name]
        log = ReadLog("skip")
        found = list(self.source(tmp_path, name, on_bad="skip").documents(log))
        assert len(found) == log.documents == left
        assert log.bad == {kind: 1}


@pytest.mark.parametrize("split", ["file", "lines", "paragraphs"])
def test_as_many_characters_as_allowed_are_read(tmp_path, split):
    """Also of four bytes each."""
    text = "\U0001f642" * 50
    whole = f"{text}\n" if split == "lines" else text
    write(tmp_path, {"a.txt": whole.encode()})
    assert list(TextSource(tmp_path, split=split, max_characters=50)) == [text]


# name: (columns, kind, row or None, how many)
TABLES = {
    "null": ({"text": ["a", None, "b"]}, "not_a_string", 2, 1),
    "numbers": ({"text": [1, 2, 3]}, "not_a_string", 1, 3),
    "empty": ({"text": ["a", "b", ""]}, "empty", 3, 1),
    "huge": ({"text": ["a", "b", "x" * 51]}, "huge", 3, 1),
    "bytes": ({"text": [b"a", b"\xff", b"b"]}, "invalid_utf8", 2, 1),
    "no column": ({"body": ["a", "b", "c"]}, "missing_field", None, 3),
}


@pytest.mark.parametrize("name", TABLES)
def test_parquet(tmp_path, name):
    columns, kind, row, count = TABLES[name]
    write(tmp_path, {"a.parquet": parquet(columns)})
    options = {"max_characters": 50}
    place = "a.parquet" if row is None else f"a.parquet, line {row}"
    match = f"{place}: {kind.replace('_', ' ')}: "
    with pytest.raises(BadRecordError, match=match):
        list(TextSource(tmp_path, **options))
    log = ReadLog("skip")
    found = list(TextSource(tmp_path, **options, on_bad="skip").documents(log))
    assert len(found) == 3 - count and log.bad == {kind: count}


def test_invalid_utf8_in_a_column_of_strings(tmp_path):
    import pyarrow

    raw = pyarrow.array([b"a", b"\xff\xfe", b"b"]).view(pyarrow.string())
    write(tmp_path, {"a.parquet": parquet({"text": raw})})
    with pytest.raises(BadRecordError, match="line 2: invalid utf8: .*byte 0xff"):
        list(TextSource(tmp_path))
    assert list(TextSource(tmp_path, on_bad="skip")) == ["a", "b"]


def test_a_flood_of_bad_records_is_counted_not_logged(tmp_path, caplog):
    write(tmp_path, {"a.jsonl": b"{\n" * 500 + b'{"text": ""}\n' * 2 + GOOD})
    log = ReadLog("skip", log_limit=3)
    with caplog.at_level(logging.WARNING, logger="keras_idea.data"):
        assert list(TextSource(tmp_path).documents(log)) == ["good"]
    assert log.bad == {"broken_json": 500, "empty": 2}
    assert log.summary() == "1 document, 500 broken json skipped, 2 empty skipped"
    kinds = ["broken json: skipped" in line for line in caplog.messages]
    assert sum(kinds) == 3 and len(caplog.messages) == 3 + 1 + 2
    assert "further records of this kind (broken json)" in caplog.messages[3]


@pytest.mark.parametrize(
    "arguments, match",
    [
        ({"on_bad": "warn"}, "`on_bad` must be one of 'refuse', 'skip'.*'warn'"),
        ({"log_limit": -1}, "`log_limit` must be an integer >= 0.*=-1"),
    ],
)
def test_bad_argument(arguments, match):
    with pytest.raises(ValueError, match=match):
        ReadLog(**arguments)
