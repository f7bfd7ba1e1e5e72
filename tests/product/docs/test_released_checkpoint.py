"""`make checkpoint` in small: examples/released_checkpoint.py on a tiny GGUF file."""

import json
import re

import pytest

from examples import released_checkpoint
from keras_idea.export import export_gguf
from tests.support.training_text import TEXT, with_tokenizer

TO_SMALL = {
    "target_dim = 0.667": "target_dim = 0.5",
    "round_to = 32": "round_to = 2",
    "sequence_length = 128": "sequence_length = 16",
    'paths = ["stdlib"]': 'paths = ["text.txt"]',
    "validation_batches = 8": "validation_batches = 1",
    "recover_steps = 299": "recover_steps = 5",
    "warmup_steps = 25": "warmup_steps = 1",
    "validate_every = 75": "validate_every = 3",
    "tokens = 32": "tokens = 4",
}


@pytest.mark.daily()
def test_a_gguf_file_in_a_smaller_one_out(tmp_path, monkeypatch, capsys):
    """The whole command; what is done is not done again."""
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "tiny.gguf"
    export_gguf(with_tokenizer("llama", "sentencepiece"), source)
    (tmp_path / "text.txt").write_text(TEXT * 40)
    config = released_checkpoint.CONFIG.read_text("utf-8")
    for large, small in TO_SMALL.items():
        assert large in config
        config = config.replace(large, small)
    (tmp_path / "small.toml").write_text(config)
    words = ["x", "--source", str(source), "--config", "small.toml"]
    monkeypatch.setattr("sys.argv", words)
    released_checkpoint.main()
    folder = tmp_path / "runs/released"
    table = (folder / "table.md").read_text("utf-8")
    rows = json.loads((folder / "run/table.json").read_text("utf-8"))["rows"]
    for row in rows:
        assert f"| {row['name']} | {row['parameters']:,} |" in table
    sizes = {row["name"]: row["parameters"] for row in rows}
    assert sizes["pruned"] < sizes["wide before pruning"]
    assert all(f"\n{name}: " in table for name in ("wide before pruning", "pruned"))
    assert len(re.findall(r"\| \d+\.\d \|$", table, re.M)) == 2  # tokens per second
    assert (folder / "narrow.gguf").is_file()
    written = (folder / "run/table.json").stat().st_mtime_ns
    capsys.readouterr()
    released_checkpoint.main()
    assert (folder / "run/table.json").stat().st_mtime_ns == written
    assert "$ keras-idea" not in capsys.readouterr().out
