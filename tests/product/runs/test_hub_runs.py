"""Whole tiny runs of KerasHub models, and what a stranger can do with the presets."""

import csv
import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea.data import open_text
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.cli import main
from keras_idea.lm.runs.run_folder import FILES
from tests.support.tiny_run import (
    CONFIG,
    ONE_LAYER,
    load,
    run_in,
    with_hub,
    write_inputs,
)

ONE_MODEL = ONE_LAYER + "compare_from_scratch = false\nmeasure = false\n"
MASKED = ONE_MODEL + "[pruning]\ncompact = 'off'\n"
# What another process must not be able to import.
WITHOUT_US = "import sys; sys.modules['keras_idea'] = None\n"


@pytest.fixture(scope="module")
def llama3(tmp_path_factory):
    """The folder of a run of Llama 3 on bytes, and what it printed."""
    return run_in(tmp_path_factory.mktemp("hub"), with_hub(ONE_LAYER, "hub = 'llama3'"))


def rows(run):
    return json.loads((run / "table.json").read_text())["rows"]


def bits_per_byte(run):
    """Of the preset on the text the run held out, counted by detokenizing it."""
    model = load(run)
    tokenizer, model.preprocessor = model.preprocessor.tokenizer, None
    text = open_text(paths=run.parent.parent / "text.txt", validation_fraction=0.2)
    ids = np.asarray(tokenizer.tokenize(bytes(text.held_out.tolist()).decode()))
    assert 4 * 16 < len(ids) <= 8 * 16  # whole batches of 4 sequences: one
    windows = np.stack([ids[16 * i : 16 * i + 17] for i in range(4)]).astype("int32")
    logits = model(token_inputs(model, windows[:, :-1]), training=False)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    nats = float(keras.ops.convert_to_numpy(loss(windows[:, 1:], logits)))
    texts = tokenizer.detokenize([row.tolist() for row in windows[:, 1:]])
    return nats / sum(len(text.encode()) for text in texts) / np.log(2.0)


def perplexity_in_transformers(run):
    """Per token, of the run's held-out windows, in plain torch on its exported model.

    A window is 16 tokens that are read, and the 16 after each of them. 8 of all windows
    that do not overlap are chosen, evenly spread; of fewer, whole batches of 4.
    """
    import torch
    import transformers

    folder = run.parent / "hf"
    assert main(["export", str(run), "--hf", str(folder)]) == 0
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    text = open_text(paths=run.parent.parent / "text.txt", validation_fraction=0.2)
    tokenizer = load(run).preprocessor.tokenizer
    ids = torch.tensor(
        np.array(tokenizer.tokenize(bytes(text.held_out.tolist()).decode()))
    )
    whole = (len(ids) - 1) // 16
    chosen = [i * whole // 8 for i in range(8)] if whole > 8 else range(whole // 4 * 4)
    windows = torch.stack([ids[16 * i : 16 * i + 17] for i in chosen]).long()
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits.double()
    loss = torch.nn.functional.cross_entropy(logits.mT, windows[:, 1:])
    return float(loss.exp())


class TestBytes:
    def test_leaves_a_preset_instead_of_a_keras_file(self, llama3):
        run, _ = llama3
        other_runs = {"narrow.keras", "full.keras", "widths.json"}
        expected = {*FILES, "preset"} - other_runs
        assert {path.name for path in run.iterdir()} == expected

    def test_the_preset_is_stock_and_narrow(self, llama3):
        import keras_hub

        run, _ = llama3
        model = load(run)
        assert type(model) is keras_hub.models.Llama3CausalLM
        assert model.backbone.intermediate_dim == 8
        assert {ffn.hidden_dim for ffn in ki.find_ffns(model)} == {8}
        assert model.preprocessor.sequence_length == 16
        assert type(model.preprocessor.tokenizer).__name__ == "Llama3Tokenizer"
        wide, pruned, scratch = rows(run)
        assert pruned["parameters"] == scratch["parameters"] == model.count_params()
        assert wide["parameters"] - pruned["parameters"] == 3 * 16 * (32 - 8)

    def test_every_model_is_measured(self, llama3):
        run, printed = llama3
        for row in rows(run):
            assert row["step_ms"] > 0 and row["generation_speed"] > 0
            assert 6.0 < row["bits_per_byte"] < 8.5
        assert "Vocabulary: 261 tokens, 1.00 bytes per token" in printed

    def test_the_perplexity_is_that_of_transformers(self, llama3):
        run, printed = llama3
        expected = perplexity_in_transformers(run)
        told = rows(run)[1]["perplexity_per_token"]
        assert told == pytest.approx(expected, rel=1e-5)
        shown = re.findall(r"perplexity per token: ([0-9.]+)", printed)
        assert pytest.approx(expected, rel=1e-5) in map(float, shown)
        *_, last = csv.DictReader((run / "metrics.csv").read_text().splitlines()[:13])
        told = float(last["validation_perplexity_per_token"])
        assert told == pytest.approx(expected, rel=1e-5)

    def test_the_widths_fall_as_scheduled(self, llama3):
        run, _ = llama3
        lines = (run / "metrics.csv").read_text().splitlines()[1:13]
        width = ki.CubicWidth(32, 8, begin_step=4, prune_steps=3)
        assert [int(line.split(",")[3]) for line in lines] == [
            width(step) for step in range(1, 13)
        ]

    def test_the_printed_lines_work_without_this_package(self, llama3):
        run, printed = llama3
        lines = [line.strip() for line in printed.splitlines()]
        first = lines.index("import keras_hub")
        assert lines[first + 1].endswith("from_preset('runs/tiny/preset')")
        command = [sys.executable, "-c", WITHOUT_US + "\n".join(lines[first:])]
        result = subprocess.run(
            command,
            cwd=run.parent.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("the ") and len(result.stdout) > 6

    def test_the_sample_continues_the_prompt(self, llama3):
        run, _ = llama3
        text = (run / "sample.txt").read_text(encoding="utf-8")
        assert text.startswith("the ") and len(text) >= 15

    def test_another_run_begins_with_the_preset(self, llama3):
        run, _ = llama3
        others = MASKED[MASKED.index("sequence_length") :]
        config = f"[model]\npreset = '{run / 'preset'}'\ntarget_dim = 4\n{others}"
        folder = run.parent.parent / "again"
        folder.mkdir()
        again, _ = run_in(folder, config)
        wide, pruned = rows(again)
        assert wide["parameters"] == rows(run)[1]["parameters"]
        model = load(again)
        assert model.backbone.intermediate_dim == 4
        assert model.count_params() == pruned["parameters"]
        # It went on from the weights: a fresh model is at 8 bits.
        assert wide["bits_per_byte"] < rows(run)[1]["bits_per_byte"] + 0.05


@pytest.mark.parametrize(
    "hub, tokenizer, size",
    [("qwen3", "bpe", 297), ("gemma", "sentencepiece", 340)],
)
def test_a_trained_tokenizer(tmp_path, hub, tokenizer, size):
    keys = f"hub = {hub!r}", f"tokenizer = {tokenizer!r}", f"vocabulary_size = {size}"
    run, printed = run_in(tmp_path, with_hub(MASKED, *keys))
    model = load(run)
    assert model.backbone.vocabulary_size == size
    assert f"Vocabulary: {size} tokens" in printed
    assert "1.00 bytes per token" not in printed
    per_neuron = 2 if hub == "gemma" else 1
    assert model.backbone.intermediate_dim == 8 * per_neuron
    wide, pruned = rows(run)
    assert pruned["bits_per_byte"] == pytest.approx(bits_per_byte(run), abs=1e-4)
    assert pruned["bits_per_byte"] < wide["bits_per_byte"] < 8.0
    if hub == "gemma":  # KerasHub exports no Qwen3 to Hugging Face
        expected = perplexity_in_transformers(run)
        assert pruned["perplexity_per_token"] == pytest.approx(expected, rel=1e-5)
    sample = (run / "sample.txt").read_text(encoding="utf-8")
    assert sample.startswith("the ")


class TestRefusedBeforeAnyWork:
    @pytest.mark.parametrize(
        "config, match",
        [
            (with_hub(CONFIG, "hub = 'llama3'"), 'pip install "keras-idea[hub]"'),
            ("[model]\npreset = 'x'\n[data]\ntext = 'text.txt'", "delete the line `h"),
        ],
    )
    def test_keras_hub_is_missing(self, tmp_path, monkeypatch, capsys, config, match):
        write_inputs(tmp_path, config)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, "keras_hub", None)
        assert main(["train", "tiny.toml"]) == 2
        captured = capsys.readouterr()
        assert match in captured.err and captured.err.count("\n") == 1
        assert not (tmp_path / "runs").exists()

    def test_no_such_preset(self, tmp_path, monkeypatch, capsys):
        write_inputs(tmp_path, "[model]\npreset = './x'\n[data]\ntext = 'text.txt'")
        monkeypatch.chdir(tmp_path)
        assert main(["train", "tiny.toml"]) == 2
        assert "Received: preset='./x'." in capsys.readouterr().err
        assert not (tmp_path / "runs").exists()
