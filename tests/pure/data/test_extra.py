"""The extra `data`: nothing of it is imported before it is needed."""

import subprocess
import sys

import pytest

from keras_idea.data import (
    StreamedDataset,
    TextSource,
    TokenBatches,
    build_cache,
    byte_vocabulary,
    load_vocabulary,
)
from tests.support.text_files import jsonl, parquet, write, zst


def test_importing_and_plain_text_need_none_of_it(tmp_path):
    write(tmp_path, {"a.jsonl": jsonl(["a text"])})
    code = f"""
import sys, keras, keras_idea
before = set(sys.modules)
import keras_idea.data as d
cache = d.build_cache(
    d.TextSource({str(tmp_path)!r}), d.load_vocabulary("bytes"), {str(tmp_path)!r}
)
assert len(cache) == 7
print(*{{name.split(".")[0] for name in set(sys.modules) - before}})
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    extra = {"grain", "zstandard", "pyarrow", "datasets", "tokenizers", "rich"}
    assert not set(result.stdout.split()) & (extra | {"sentencepiece", "pandas"})


def needs_grain(folder):
    source = TextSource(folder / "a.jsonl.zst")
    return TokenBatches(build_cache(source, load_vocabulary("bytes"), folder), 2, 1)


NEEDS = {
    "zstandard": lambda folder: list(TextSource(folder / "a.jsonl.zst")),
    "pyarrow": lambda folder: list(TextSource(folder / "a.parquet")),
    "datasets": lambda folder: list(StreamedDataset(str(folder))),
    "sentencepiece": lambda folder: load_vocabulary(folder / "a.model"),
    "tokenizers": lambda folder: load_vocabulary(folder / "a.json"),
    "grain": needs_grain,
}


@pytest.mark.parametrize("package", NEEDS)
def test_what_is_missing_is_named_and_how_to_get_it(tmp_path, monkeypatch, package):
    files = {
        "a.jsonl.zst": zst(jsonl(["a text"])),
        "a.parquet": parquet({"text": ["a text"]}),
        "a.model": b"",
        "a.json": b"",
    }
    write(tmp_path, files)
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    match = rf"needs the package '{package}', .*: pip install \"keras-idea\[data\]\""
    with pytest.raises(ImportError, match=match):
        NEEDS[package](tmp_path)


def test_rich_is_needed_for_a_bar_that_is_asked_for(tmp_path, monkeypatch):
    """Where it is not asked for, a terminal without `rich` gets none."""
    monkeypatch.setitem(sys.modules, "rich", None)
    for name in [name for name in sys.modules if name.startswith("rich.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    write(tmp_path, {"a.txt": b"a text"})
    source, vocabulary = TextSource(tmp_path / "a.txt"), byte_vocabulary(end=True)
    match = r"progress bar needs the package 'rich', .*\"keras-idea\[cli\]\""
    with pytest.raises(ImportError, match=match):
        build_cache(source, vocabulary, tmp_path / "cache", progress=True)
    assert len(build_cache(source, vocabulary, tmp_path / "cache")) == 7
