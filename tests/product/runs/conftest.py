"""A whole run of a config, changed in some keys."""

import functools

import pytest

from keras_idea.lm.cli import main
from tests.support.tiny_run import ALONE, write_inputs


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A function that carries out a run and returns its folder."""
    monkeypatch.chdir(tmp_path)

    def train(name, *edits):
        text = functools.reduce(lambda text, edit: text.replace(*edit), edits, ALONE)
        write_inputs(tmp_path, text)
        (tmp_path / "tiny.toml").rename(tmp_path / f"{name}.toml")
        assert main(["train", f"{name}.toml"]) == 0
        return tmp_path / "runs" / name

    return train
