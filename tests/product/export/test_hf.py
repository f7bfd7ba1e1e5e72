"""Hugging Face folders by KerasHub's importer run backwards; presets keep files."""

import json

import numpy as np
import pytest

import keras_idea as ki
from keras_idea.errors import ExportFailed, ExportRefused
from keras_idea.export import export_hf, export_preset, load_run
from keras_idea.hub import kept
from keras_idea_cli import main
from tests.product.hub.test_released_tokenizers import save
from tests.support import released_tokenizers as made
from tests.support.hub_models import tiny_lm
from tests.support.languages import TEXTS, ids_of, narrow
from tests.support.released_models import release
from tests.support.released_rows import ALL
from tests.support.with_tokenizer import VOCABULARY, with_tokenizer

HALF = {"neurons": 0.5}


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


NIGHT = pytest.mark.daily()


@pytest.mark.parametrize(
    "name, key, width",
    [
        ("llama tied", "intermediate_size", 20),
        pytest.param("mistral head size", "intermediate_size", 20, marks=NIGHT),
        # What KerasHub computes with other weights is written with the checkpoint's.
        ("qwen3 epsilon", "intermediate_size", 20),
        pytest.param("gemma2 scalar", "intermediate_size", 20, marks=NIGHT),
        pytest.param("gemma3text scalar", "intermediate_size", 20, marks=NIGHT),
        pytest.param("gpt2", "n_inner", 48, marks=NIGHT),
        pytest.param("qwen3moe tied", "moe_intermediate_size", 6, marks=NIGHT),
        ("mixtral", "intermediate_size", 20),
        pytest.param("roberta masked", "intermediate_size", 20, marks=NIGHT),
        ("xlmroberta", "intermediate_size", 20),
        pytest.param("distilbert", "hidden_dim", 20, marks=NIGHT),
        pytest.param("albert", "intermediate_size", 20, marks=NIGHT),
        ("vit", "intermediate_size", 20),
        pytest.param("vit classifier", "intermediate_size", 20, marks=NIGHT),
    ],
)
def test_a_narrower_checkpoint_of_each_kind(name, key, width, tmp_path):
    release(tmp_path / "source", ALL[name])
    model = ki.hub.load(tmp_path / "source")
    export = export_hf(ki.shrink(model, HALF, method="magnitude"), tmp_path / "out")
    assert export.match.difference < 2e-5 * max(1, export.match.largest)
    assert config_of(tmp_path / "out")[key] == width
    again = ki.hub.load(tmp_path / "out")
    assert type(again) is type(model)
    # Of a model made from nothing the config is the family's own.
    kept.keep(model, None)
    own = export_hf(model, tmp_path / "own").match
    assert own.difference < 2e-5 * max(1, own.largest)


def test_a_tied_matrix_is_written_once(tmp_path):
    import safetensors

    release(tmp_path / "source", ALL["llama tied"])
    export_hf(ki.hub.load(tmp_path / "source"), tmp_path / "out")
    names = {}
    for folder in ("source", "out"):
        with safetensors.safe_open(tmp_path / folder / "model.safetensors", "np") as f:
            names[folder] = set(f.keys())
    assert names["out"] == names["source"]


def test_files_of_the_checkpoint_stay_through_presets(tmp_path):
    """Its own tokenizer, chat template and settings, and a dtype of half precision."""
    source = tmp_path / "source"
    save(source, "llama", made.byte_level("smollm"))
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (source / "generation_config.json").write_text('{"temperature": 0.6}')
    export_preset(ki.hub.load(source), tmp_path / "preset")
    narrow = ki.shrink(load_run(tmp_path / "preset"), HALF, method="magnitude")
    export = export_hf(narrow, tmp_path / "out", dtype="bfloat16")
    assert "bfloat16" in str(export) and config_of(tmp_path / "out")["dtype"]
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    generation = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert generation["temperature"] == 0.6


def test_pooling_stays(tmp_path):
    from tests.product.hub.test_released_encoders import write_modules

    release(tmp_path / "source", ALL["bert"])
    write_modules(tmp_path / "source", "pooling_mode_cls_token")
    export_hf(ki.hub.load(tmp_path / "source"), tmp_path / "out")
    again = ki.hub.load(tmp_path / "out")
    assert (again.pooling_mode, again.normalize) == ("cls", True)


@pytest.mark.parametrize("name", ["llama3 tied", "cut", "gemma"])
def test_a_smaller_vocabulary(name, tmp_path):
    import transformers

    lm = narrow(name)
    told = str(export_hf(lm, tmp_path / "hf"))
    kind = transformers.AutoTokenizer
    if "Warning" in told:  # Qwen's class cuts texts as it likes
        kind = transformers.PreTrainedTokenizerFast
    assert ("Warning" in told) == (name == "cut")
    theirs = kind.from_pretrained(tmp_path / "hf")
    for text in TEXTS:
        found = theirs.encode(text, add_special_tokens=False)
        assert found == ids_of(lm.preprocessor.tokenizer, text)


def test_fewer_heads(tmp_path):
    heads = {"num_query_heads": 8, "num_key_value_heads": 4, "head_dim": 2}
    lm = tiny_lm("mistral", num_layers=1, vocabulary_size=VOCABULARY, **heads)
    lm.compile(loss="sparse_categorical_crossentropy")
    narrow = ki.shrink(lm, {"kv_groups": 2}, method="magnitude")
    export_hf(narrow, tmp_path / "hf")
    keys = ("num_attention_heads", "num_key_value_heads", "head_dim")
    assert [config_of(tmp_path / "hf")[key] for key in keys] == [4, 2, 2]


@pytest.fixture(scope="module")
def lm():
    lm = tiny_lm("llama3", num_layers=1, vocabulary_size=VOCABULARY)
    return with_tokenizer(lm, "llama3")


class TestNothingIsLeft:
    def test_other_outputs(self, lm, tmp_path, monkeypatch):
        from keras_idea._lm.export import hf, preset

        for export, module in ((export_hf, hf), (export_preset, preset)):
            outputs = module.keras_outputs
            shifted = lambda m, f=outputs: lambda row: f(m)(row) + np.nan  # noqa: E731
            monkeypatch.setattr(module, "keras_outputs", shifted)
            with pytest.raises(ExportFailed, match="differ by nan"):
                export(lm, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("command", ["--preset", "--hf"])
    def test_a_path_that_exists(self, lm, tmp_path, command, capsys):
        (tmp_path / "out").mkdir()
        lm.save_to_preset(str(tmp_path / "preset"))
        arguments = [str(tmp_path / "preset"), command, str(tmp_path / "out")]
        assert main(["export", *arguments]) == 2
        assert "exists already" in capsys.readouterr().err
        arguments[-1] += "2"
        assert main(["export", *arguments]) == 0
        assert "loaded back" in capsys.readouterr().out

    def test_without_transformers(self, lm, tmp_path, monkeypatch):
        import importlib.util

        find = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name == "transformers" else find(name, *rest),
        )
        with pytest.raises(ExportRefused, match="transformers"):
            export_hf(lm, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_what_cannot_be_exported(self, tmp_path):
        for name, match in (("opt", "OPTBackbone"), ("bloom", "BloomBackbone")):
            with pytest.raises(ExportRefused, match=match):
                export_hf(tiny_lm(name), tmp_path / "out")
        (tmp_path / "run").mkdir()
        with pytest.raises(ExportRefused, match="nothing is saved"):
            load_run(tmp_path / "run")
