"""A released Gemma needs its start token before every sequence: runs, `evaluate`."""

import numpy as np
import pytest

from keras_idea.lm.cli import main
from keras_idea.lm.runs.config import parse_config
from keras_idea.lm.runs.judge.judged import load_judged
from keras_idea.lm.runs.run_folder import RunFolder
from keras_idea.lm.runs.train import written
from keras_idea.lm.runs.train.prepare import prepare, run_summary
from tests.support.tiny_run import ONE_LAYER
from tests.support.training_text import TEXT, with_tokenizer

FROM_PRESET = {
    "model_dim = 16\n": "",
    "num_layers = 1\n": "",
    "num_heads = 2\n": "",
    "hidden_dim = 32\n": "preset = 'wide'\n",
    "enlarge_steps = 4": "enlarge_steps = 0",
}


@pytest.mark.parametrize("name, needs", [("gemma", True), ("llama", False)])
def test_every_sequence_begins_with_it(name, needs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lm = with_tokenizer(name, "sentencepiece")
    lm.save_to_preset("wide")
    start = lm.preprocessor.tokenizer.start_token_id
    (tmp_path / "text.txt").write_text(TEXT * 20)
    assert load_judged("wide", 16).window_start == (start if needs else None)
    assert main(["evaluate", "wide", "--text", "text.txt", "--length", "16"]) == 0
    assert ("the start token, " in capsys.readouterr().out) == needs
    config = ONE_LAYER
    for ours, theirs in FROM_PRESET.items():
        assert ours in config
        config = config.replace(ours, theirs)
    run = prepare(parse_config(config), RunFolder("runs/none"))
    assert ("begins with the start token" in run_summary(run)) == needs
    corpus = run.models.corpus
    batch = corpus.batch(1, seed=0, batch_size=8, length=16)
    for x, _ in (batch, corpus.validation_windows(length=16)):
        assert (x[:, 0] == start).all() == needs
    # The text that it writes goes on after the token too, which is no text.
    given = []

    def first_ids(run, narrow, ids, limit):
        given.append(ids.tolist())
        return np.append(ids, ids[-2:])

    monkeypatch.setattr(written, "_written", first_ids)
    prompt = written.default_prompt(run)
    text, count = written.written_text(run, lm, prompt)
    own = run.models.vocabulary.encode(prompt).tolist()
    assert given == [[start, *own] if needs else own]
    assert text.startswith(prompt) and count == 2
