"""Presets that were saved without their tokenizer: told, or refused; never silent."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_idea as ki
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from keras_idea._lm.runs.judge import load_judged
from keras_idea.export import load_run
from keras_idea_cli import main
from tests.support.hub_models import tiny_lm
from tests.support.masks import prune_by_hand

TEXT = "the quick brown fox jumps over the lazy dog, again and again\n" * 20


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """A folder of presets: of one model, with more or less beside its weights."""
    import keras_hub

    folder = tmp_path_factory.mktemp("presets")
    tokenizer = make_tokenizer("llama3", "bpe", TEXT, 300)
    size = tokenizer.vocabulary_size()
    lm = tiny_lm("llama3", num_layers=1, vocabulary_size=size)
    lm.save_to_preset(str(folder / "task"))
    lm.backbone.save_to_preset(str(folder / "backbone"))
    lm.save_to_preset(str(folder / "beside"))
    tokenizer.save_to_preset(str(folder / "beside"))
    lm.preprocessor = keras_hub.models.Llama3CausalLMPreprocessor(tokenizer, 16)
    lm.save_to_preset(str(folder / "whole"))
    return folder


@pytest.mark.parametrize("kind", ["task", "backbone"])
class TestNone:
    @pytest.mark.daily()
    def test_each_export_tells_it(self, presets, tmp_path, capsys, kind):
        for option in ("--preset", "--hf"):
            out = str(tmp_path / f"out{option}")
            assert main(["export", str(presets / kind), option, out]) == 0
            assert "It has no tokenizer" in capsys.readouterr().out

    def test_it_is_not_judged_as_bytes(self, presets, capsys, kind):
        (presets / "text.txt").write_text(TEXT)
        command = ["evaluate", str(presets / kind), "--text", str(presets / "text.txt")]
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "has no tokenizer" in error


@pytest.mark.parametrize("kind", ["beside", "whole"])
class TestOne:
    @pytest.mark.daily()
    def test_it_is_kept(self, presets, tmp_path, capsys, kind):
        lm = load_run(presets / kind)
        expected = np.asarray(lm.preprocessor.tokenizer(TEXT)).tolist()
        assert len(expected) < len(TEXT) / 2
        assert main(["export", str(presets / kind), "--hf", str(tmp_path / "hf")]) == 0
        assert "Warning" not in capsys.readouterr().out
        found = json.loads(in_a_fresh_process(HF, tmp_path / "hf", TEXT))
        assert found == [lm.preprocessor.tokenizer.start_token_id, *expected]

    def test_it_judges(self, presets, kind):
        judged = load_judged(presets / kind, length=16)
        assert len(judged.vocabulary.encode(TEXT)) < len(TEXT) / 2


HF = """
import json, sys, transformers
tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps(tokenizer.encode(sys.argv[2])))
"""


def in_a_fresh_process(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class TestCompact:
    """A task that has a preprocessor keeps it, and its class."""

    def test_it_generates(self, presets, tmp_path):
        import keras_hub

        lm = keras_hub.models.CausalLM.from_preset(str(presets / "whole"))
        for ffn in ki.find_ffns(lm):
            prune_by_hand(ffn, np.arange(ffn.hidden_dim) < 10)
        lm.compile(keras.optimizers.Adam(), sampler="greedy")
        narrow = ki.compact(lm)
        assert type(narrow) is type(lm)
        assert narrow.preprocessor.tokenizer is lm.preprocessor.tokenizer
        expected = lm.generate("the quick", max_length=12, stop_token_ids=None)
        narrow.save_to_preset(str(tmp_path / "narrow"))
        loaded = keras_hub.models.CausalLM.from_preset(str(tmp_path / "narrow"))
        assert loaded.backbone.intermediate_dim == 10
        loaded.compile(sampler="greedy")
        for model in (narrow, loaded):
            found = model.generate("the quick", max_length=12, stop_token_ids=None)
            assert found == expected and found.startswith("the quick")
