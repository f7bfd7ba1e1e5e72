"""A small model with a tokenizer, a run folder that holds it; no llama.cpp."""

import pytest

from keras_idea.export import export_preset
from keras_idea.lm.export.gguf import check as gguf_check
from tests.support.hub_models import tiny_lm
from tests.support.with_tokenizer import VOCABULARY, with_tokenizer


@pytest.fixture
def alone(monkeypatch):
    """Without llama.cpp, wherever this runs."""
    monkeypatch.setattr(gguf_check, "missing", lambda modules: modules)


@pytest.fixture(scope="module")
def lm():
    """A small stock Llama3 with a byte-level tokenizer."""
    return with_tokenizer(
        tiny_lm("llama3", num_layers=1, vocabulary_size=VOCABULARY), "llama3"
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory, lm):
    """A run folder as a run of a KerasHub model leaves it, as far as exports go."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.toml").write_text("")
    export_preset(lm, folder / "preset")
    return folder
