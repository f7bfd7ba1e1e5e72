"""`keras-idea evaluate` on a run's folder, through the command line."""

import math
import re

import keras
import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.runs.judge.evaluate import judge_text
from keras_idea.lm.runs.judge.judged import load_judged
from keras_idea.models import DecoderConfig, decoder

TEXT = "the quick brown fox, and again: " * 20


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder as a run leaves it: a byte-level decoder and its config."""
    folder = tmp_path_factory.mktemp("run")
    model = decoder(
        DecoderConfig(
            vocabulary_size=256,
            model_dim=8,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            sequence_length=32,
        )
    )
    model.save(folder / "narrow.keras")
    (folder / "config.toml").write_text("[model]\nsequence_length = 32\n")
    (folder / "text.txt").write_text(TEXT)
    return folder, model


def test_a_text(run, capsys):
    folder, model = run
    command = ["evaluate", str(folder), "--text", str(folder / "text.txt")]
    command += ["--stride", "32"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    # By hand: windows that do not overlap; the last one reaches back.
    ids = np.frombuffer(TEXT.encode(), "uint8").astype("int32")
    nats, done = 0.0, 0
    while done < len(ids) - 1:
        end = min(done + 32, len(ids) - 1)
        window = ids[max(0, end - 32) : end + 1]
        logits = keras.ops.convert_to_numpy(model(window[None, :-1]))[0]
        logs = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
        fresh = end - done
        nats -= logs[np.arange(len(window) - 1), window[1:]][-fresh:].sum()
        done = end
    bits = nats / (len(ids) - 1) / math.log(2)
    [shown] = re.findall(r"bits per byte +([0-9.]+)", printed)
    assert float(shown) == pytest.approx(bits, abs=2e-4)
    assert re.search(rf"tokens +{len(ids) - 1}\b", printed)
    # 639 tokens are predicted: 19 windows of 32, and one of which 31 are new.
    assert re.search(r"last window +begins 1 token earlier", printed)


def test_a_folder_is_one_text_whatever_a_run_would_hold_out(run, tmp_path):
    parts = [f"part {i} of many. " * (i + 3) for i in range(8)]
    (tmp_path / "parts").mkdir()
    for i, text in enumerate(parts):
        (tmp_path / "parts" / f"{i}.txt").write_text(text)
    found = judge_text(load_judged(run[0]), tmp_path / "parts")
    assert found.tokens == sum(map(len, parts)) - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "nowhere.txt"], "No text at 'nowhere.txt'"),
        (["--text", "stdlib", "--stride", "33"], "`stride` must be"),
    ],
)
def test_refusals(run, options, message, capsys):
    assert main(["evaluate", str(run[0]), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_a_model(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), "--text", "stdlib"]) == 2
    assert "No model to evaluate in" in capsys.readouterr().err
