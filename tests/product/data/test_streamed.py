"""Hugging Face data sets, streamed by name: here from local files, by the real path."""

import pytest

from keras_idea.data import BadRecordError, ReadLog, StreamedDataset, TextSource
from keras_idea.errors import TextError
from tests.support.text_files import TEXTS, jsonl, parquet, write, zst


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    """No network, and nothing written to the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    cache = tmp_path_factory.mktemp("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)


@pytest.fixture
def folder(tmp_path):
    """A data set of two splits, as the hub lays them out."""
    files = {
        "data/train-00000.jsonl": jsonl(TEXTS[:2]),
        "data/train-00001.jsonl": jsonl(TEXTS[2:]),
        "data/test-00000.jsonl": jsonl(["held out"]),
    }
    return write(tmp_path / "corpus", files)


def test_a_folder_by_its_name(folder):
    log = ReadLog()
    assert list(StreamedDataset(str(folder)).documents(log)) == TEXTS
    assert log.documents == 4
    assert list(StreamedDataset(str(folder), split="test")) == ["held out"]


@pytest.mark.parametrize(
    "builder, name, content",
    [
        ("json", "a.jsonl", jsonl(TEXTS)),
        ("json", "a.jsonl.zst", zst(jsonl(TEXTS))),
        ("parquet", "a.parquet", parquet({"text": TEXTS})),
    ],
)
def test_a_builder_with_files(tmp_path, builder, name, content):
    path = write(tmp_path, {name: content}) / name
    for files in (str(path), [path]):
        assert list(StreamedDataset(builder, data_files=files)) == TEXTS
    assert list(TextSource(path)) == TEXTS


def test_a_byte_order_mark_is_no_text(tmp_path):
    """`datasets` leaves it in the first line of a text file, not of other formats."""
    mark = "\ufeff".encode()
    text = mark + "".join(f"line {i}\n" for i in range(4)).encode()
    write(tmp_path / "texts", {"a.txt": text, "b.txt": mark + b"b \xef\xbb\xbf b"})
    lines = [*(f"line {i}" for i in range(4)), "b \ufeff b"]
    assert list(StreamedDataset(str(tmp_path / "texts"))) == lines
    files = str(tmp_path / "texts" / "*.txt")
    assert list(StreamedDataset("text", data_files=files)) == lines
    record = write(tmp_path, {"a.jsonl": mark + jsonl(["\ufeffa", "b"])}) / "a.jsonl"
    for source in (StreamedDataset("json", data_files=str(record)), TextSource(record)):
        assert list(source) == ["\ufeffa", "b"]  # of a record it is as it was written


def test_bad_records(tmp_path):
    path = write(tmp_path, {"a.jsonl": jsonl(["a", "", "x" * 51, None, "b"])})
    options = {"data_files": str(path / "a.jsonl"), "max_characters": 50}
    log = ReadLog("skip")
    assert list(StreamedDataset("json", **options).documents(log)) == ["a", "b"]
    assert log.bad == {"empty": 1, "huge": 1, "not_a_string": 1}
    place = "data set 'json', split 'train', line 2: empty"
    with pytest.raises(BadRecordError, match=place):
        list(StreamedDataset("json", **options))
    with pytest.raises(BadRecordError, match="missing field.*no 'body' among: text"):
        list(StreamedDataset("json", **options, field="body"))


def test_what_cannot_be_read_names_the_data_set(tmp_path, folder):
    with pytest.raises(TextError, match="Cannot read data set .*split 'no'.*0 rows"):
        list(StreamedDataset(str(folder), split="no"))
    with pytest.raises(TextError, match="Cannot read data set .*nowhere"):
        list(StreamedDataset(str(tmp_path / "nowhere")))
    write(tmp_path, {"a.jsonl": jsonl(["good"]) + b"{broken\n"})
    broken = StreamedDataset("json", data_files=str(tmp_path / "a.jsonl"))
    with pytest.raises(TextError, match="Cannot read data set 'json'.*rows of it"):
        list(broken)


def test_key(folder):
    keys = [StreamedDataset(str(folder)).key()]
    keys += [StreamedDataset(str(folder), split="test").key()]
    keys += [StreamedDataset(str(folder), revision="abc").key()]
    one = str(folder / "data" / "train-*.jsonl")
    keys += [StreamedDataset("json", data_files=one).key()]
    assert len(keys[-1]["files"]) == 2 and len(keys[0]["files"]) == 3
    write(folder, {"data/train-00001.jsonl": jsonl(["other"])})
    keys += [StreamedDataset("json", data_files=one).key()]
    keys += [StreamedDataset(str(folder)).key()]
    assert all(a != b for i, a in enumerate(keys) for b in keys[:i])
    assert StreamedDataset(str(folder)).key() == keys[-1]


@pytest.mark.parametrize(
    "options, match",
    [
        ({"on_bad": "no"}, "`on_bad` must be one of"),
        ({"max_characters": 0}, "`max_characters` must be an integer >= 1"),
    ],
)
def test_bad_option(options, match):
    with pytest.raises(ValueError, match=match):
        StreamedDataset("json", **options)
