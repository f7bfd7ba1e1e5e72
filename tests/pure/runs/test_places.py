"""A run folder: what may be in it, what becomes of it, and where it may be."""

import json

import pytest

from keras_idea._lm.runs.config import parse_config
from keras_idea._lm.runs.folder import RunFolder
from keras_idea._lm.runs.train import train
from keras_idea.errors import ConfigError
from tests.support.tiny_run import CONFIG, with_keys


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return parse_config(CONFIG, "tiny")


def begun(config):
    folder = RunFolder("runs/tiny")
    folder.claim(config, resumes=False)
    return folder


def test_an_unfinished_run_resumes(config, tmp_path):
    folder = begun(config)
    assert folder.resumes(config, overwrite=False)
    other = parse_config(with_keys(CONFIG, "optimizer", "weight_decay = 0.5"), "tiny")
    with pytest.raises(ConfigError, match="optimizer.weight_decay was 0.01"):
        folder.resumes(other, overwrite=False)
    assert not folder.resumes(other, overwrite=True)
    folder.claim(other, resumes=False)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "tiny",
        "tiny-1",
    ]


def test_a_finished_run_is_kept_without_its_checkpoints(config):
    folder = begun(config)
    folder.set_status(state="finished")
    left = folder.checkpoints("pruned")
    left.mkdir(parents=True)
    (folder.path / ".tmp-x").mkdir()
    with pytest.raises(ConfigError, match="finished"):
        folder.resumes(config, overwrite=False)
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "config.toml",
        "status.json",
    ]


def test_a_folder_of_others_is_never_touched(config, tmp_path):
    (tmp_path / "runs/tiny").mkdir(parents=True)
    (tmp_path / "runs/tiny/thesis.tex").touch()
    with pytest.raises(ConfigError, match="no run folder"):
        RunFolder("runs/tiny").resumes(config, overwrite=True)


def test_one_process_at_a_time(config):
    folder = RunFolder("runs/tiny")
    with folder.locked(), pytest.raises(ConfigError, match="Another process"):
        with RunFolder("runs/tiny").locked():
            pass


def test_status_is_whole_or_absent(config):
    folder = begun(config)
    assert folder.status() == {}
    folder.set_status(state="training", step=4)
    assert json.loads((folder.path / "status.json").read_text())["step"] == 4


@pytest.mark.parametrize("text, output", [("runs/tiny/a", "runs/tiny"), (".", "out")])
def test_a_run_does_not_read_what_it_writes(config, tmp_path, text, output):
    (tmp_path / text).mkdir(parents=True, exist_ok=True)
    changed = CONFIG.replace('["text.txt"]', f'["{text}"]')
    with pytest.raises(ConfigError, match="run.output"):
        train(parse_config(changed, "tiny").with_output(output))
