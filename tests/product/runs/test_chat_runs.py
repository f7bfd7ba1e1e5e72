"""Runs on conversations: the whole command, killed and resumed, with a teacher."""

import json
import os
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

from keras_idea.data import open_text, tokenizer_vocabulary
from keras_idea.hub.inputs import token_inputs
from keras_idea.lm.cli import main
from tests.support import ROOT
from tests.support.tiny_run import ALONE, curve, load, with_hub

CHAT = (
    with_hub(ALONE, "hub = 'llama3'")
    .replace('text = "text.txt"\n', "")
    .replace("[data]", '[chat]\npaths = "chat.jsonl"\ntemplate = "template"\n\n[data]')
)
CHAT = CHAT.replace("num_layers = 2", "num_layers = 1").replace(
    "sequence_length = 16", "sequence_length = 48"
)
TEMPLATE = """{{ bos_token }}{% for m in messages %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}
{{- m['content'] + '<|eot_id|>' }}{% endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
WITHOUT_SPEEDS = "measure = false\n"
RECORDS = [{"prompt": f"add {i} to {i}", "response": f"{2 * i}"} for i in range(80)]


def write(folder, config=CHAT, records=RECORDS):
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "chat.jsonl").write_text(lines)
    (folder / "tiny.toml").write_text(config)
    (folder / "template").mkdir(exist_ok=True)
    (folder / "template" / "chat_template.jinja").write_text(TEMPLATE)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of a run that nothing stopped, and what it printed."""
    folder = tmp_path_factory.mktemp("chat")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "tiny.toml"]) == 0
    return folder


def weights(folder):
    return load(folder / "runs" / "tiny").backbone.get_weights()


def test_a_run_judges_responses(done):
    run = done / "runs" / "tiny"
    told = json.loads((run / "table.json").read_text())
    assert "conversations" in told["text"]
    assert "of the held-out responses" in (run / "table.md").read_text()
    # Bits per byte of the responses, from the model that is saved.
    lm = load(run)
    vocabulary = tokenizer_vocabulary(lm.preprocessor.tokenizer)
    corpus = open_text(
        paths=done / "chat.jsonl",
        chat=True,
        template=str(done / "template"),
        length=48,
        vocabulary=vocabulary,
        validation_fraction=0.2,
    )
    x, y, w = corpus.held_out_windows(48, limit=8)
    lm.preprocessor = None
    logits = np.asarray(lm.predict_on_batch(token_inputs(lm, x)), "float64")
    shifted = logits - logits.max(-1, keepdims=True)
    nats = (
        np.log(np.exp(shifted).sum(-1))
        - np.take_along_axis(shifted, y[..., None], -1)[..., 0]
    )
    rows = len(x) - len(x) % 4
    nats, y, w = nats[:rows], y[:rows], w[:rows]
    expected = (
        (nats * w).sum() / corpus.vocabulary.token_bytes[y[w > 0]].sum() / np.log(2)
    )
    found = next(r for r in told["rows"] if r["name"] == "pruned")
    assert found["bits_per_byte"] == pytest.approx(expected, rel=1e-4)


class Stopped(BaseException):
    pass


def test_a_stopped_run_ends_with_the_same_bits(done, tmp_path, monkeypatch, capsys):
    write(tmp_path, CHAT + WITHOUT_SPEEDS)
    monkeypatch.chdir(tmp_path)

    def stop(callback, batch, logs=None):
        if int(callback.model.optimizer.iterations) >= 6:
            raise Stopped

    with monkeypatch.context() as patch:
        bar = "keras_idea.lm.runs.train.recorder.ShortBar.on_train_batch_end"
        patch.setattr(bar, stop)
        with pytest.raises(Stopped):
            main(["train", "tiny.toml"])
    assert main(["train", "tiny.toml"]) == 0
    assert "Resuming at step 4 of 12" in capsys.readouterr().out
    same_as(done, tmp_path)


def same_as(straight, resumed):
    curves = [curve(folder / "runs" / "tiny") for folder in (straight, resumed)]
    exact = keras.backend.backend() != "tensorflow"
    rtol = 0 if exact else 1e-5
    for name, expected in curves[0].items():
        np.testing.assert_allclose(curves[1][name], expected, rtol=rtol)
    for a, b in zip(weights(straight), weights(resumed), strict=True):
        np.testing.assert_allclose(b, a, rtol=rtol, atol=0 if exact else 1e-6)


def test_a_killed_run_ends_with_the_same_bits(done, tmp_path):
    write(tmp_path)
    command = [sys.executable, "-m", "keras_idea_cli", "train", "tiny.toml"]
    how = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "env": _environment()}
    process = subprocess.Popen(command, **how)
    while not [*tmp_path.glob("runs/tiny/checkpoints/*/checkpoint-*")]:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "runs" / "tiny" / "preset").exists()
    assert subprocess.run(command, check=False, **how).returncode == 0
    same_as(done, tmp_path)


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_with_a_teacher(done, tmp_path, monkeypatch):
    teacher = str(done / "runs" / "tiny")
    lines = f"\n[distillation]\nteacher = {teacher!r}\nweight = 0.5\n"
    write(tmp_path, CHAT + WITHOUT_SPEEDS + lines)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny.toml"]) == 0
    rows = json.loads((tmp_path / "runs/tiny/table.json").read_text())["rows"]
    bits = {row["name"]: row["bits_per_byte"] for row in rows}
    before = json.loads((done / "runs/tiny/table.json").read_text())["rows"]
    own = {row["name"]: row["bits_per_byte"] for row in before}
    # The teacher is judged by the responses, as it was when it was trained.
    assert bits["teacher"] == pytest.approx(own["pruned"], rel=1e-5)


def test_a_bad_record_is_told(tmp_path, monkeypatch, capsys):
    write(tmp_path, CHAT, [*RECORDS, {"prompt": "and now?"}])
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny.toml"]) == 2
    assert "chat.jsonl, line 81: no conversation" in capsys.readouterr().err
