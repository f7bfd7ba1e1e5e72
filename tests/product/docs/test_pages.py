"""What the pages say: their code runs, their links lead somewhere."""

import importlib
import importlib.util
import pathlib
import re
import runpy
import sys
import textwrap
import zipfile

import keras
import numpy as np
import pytest

import keras_idea as ki
from docs.building import llms
from keras_idea._lm.data.make_tokenizer import make_tokenizer
from keras_idea._lm.runs.config import parse_config
from keras_idea_cli import main
from tests.pure.test_face import PACKAGES
from tests.support import ROOT
from tests.support.hub_models import tiny_lm

PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("examples/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def test_the_readme_s_code_runs(tmp_path, monkeypatch, capsys):
    """As it is copied: a few lines, from nothing to a file of stock Keras."""
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 95
    [block] = BLOCK.findall(readme)
    names: dict = {}
    exec(block, names)
    assert len([line for line in block.splitlines() if line]) <= 18
    width = names["model"].history.history["width"]
    assert width == [128.0, 128.0, 48.0, 48.0]
    told = capsys.readouterr().out
    assert "128 neurons" in told and "4 key/value heads" in told and "no: it" in told
    with zipfile.ZipFile("narrow.keras") as file:
        assert b"keras_idea" not in file.read("config.json")
    narrow = keras.models.load_model("narrow.keras")
    dense = [layer for layer in narrow.layers if type(layer) is keras.layers.Dense]
    assert [layer.units for layer in dense] == [48, 32, 256]
    x = np.arange(64).reshape(2, 32)
    expected = names["model"].predict(x, verbose=0)
    np.testing.assert_allclose(narrow.predict(x, verbose=0), expected, atol=1e-5)


def run_page(name):
    """Runs the code of a page; returns its names."""
    names: dict = {}
    for block in BLOCK.findall((ROOT / f"docs/{name}.md").read_text()):
        exec(block, names)
    return names


@pytest.mark.daily()
def test_any_keras_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run_page("any_keras_model")
    printed = capsys.readouterr().out
    page = (ROOT / "docs/any_keras_model.md").read_text()
    explained = re.search(r"```text\n(block/.*?)```", page, re.DOTALL)[1]
    assert printed.startswith(explained)
    assert "FFN width 64 to 16, 4,686 to 3,102 parameters" in printed
    # The process that loads the file needs the block, and nothing of this package.
    with zipfile.ZipFile(tmp_path / "narrow.keras") as file:
        assert b"keras_idea" not in file.read("config.json")
    narrow = keras.models.load_model("narrow.keras")
    assert [layer.units for layer in narrow.get_layer("block").ffn.layers] == [16, 16]
    assert narrow.get_layer("block").get_config()["ff_dim"] == 16
    assert narrow.evaluate(names["texts"], names["labels"], verbose=0) < 0.1
    widths = {"small": [16, 5], "full": [64, 20]}
    for name, expected in widths.items():
        model = keras.models.load_model(f"{name}.keras")
        assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == expected


@pytest.mark.daily()
def test_families(tmp_path, monkeypatch):
    """A stock model, narrow, in a preset that KerasHub loads."""
    import keras_hub

    monkeypatch.chdir(tmp_path)
    lm = run_page("families")["lm"]
    loaded = keras_hub.models.Backbone.from_preset("narrow_preset")
    assert type(loaded) is keras_hub.models.Llama3Backbone
    assert loaded.intermediate_dim == 48
    ids = {name: np.ones((1, 8), "int32") for name in ("token_ids", "padding_mask")}
    expected = lm.backbone.predict(ids, verbose=0)
    np.testing.assert_allclose(loaded.predict(ids, verbose=0), expected, atol=1e-5)


def test_no_other_page_has_code_that_no_test_runs():
    """Code is in guides and examples, which run; other pages point there."""
    holding = {str(p.relative_to(ROOT)) for p in PAGES if BLOCK.search(p.read_text())}
    run = {"README.md", "CONTRIBUTING.md", "docs/any_keras_model.md"}
    assert holding == {*run, "docs/families.md"}


def test_a_rule_of_one_line_finds_the_neurons(capsys):
    """As CONTRIBUTING says."""
    [code] = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text())
    names: dict = {}
    try:
        exec(code, names)
    finally:
        names["RULES"].pop(names["Jitter"], None)
    assert "16 neurons" in capsys.readouterr().out
    dense, jitter = names["dense"], names["Jitter"]()
    layers = [keras.Input((8,)), dense(16, "relu"), jitter, dense(3)]
    assert not ki.explain(keras.Sequential(layers)).taken


def test_the_pages_stay_short():
    """Put a new fact into a page that exists, in place of an older one."""
    docs = ROOT / "docs"
    texts = [
        *docs.glob("*.md"),
        *docs.glob("guides/*.py"),
        docs / "guides/outputs.json",
    ]
    assert sum(path.stat().st_size for path in texts) <= 200_000
    pictures = {path.name for path in docs.glob("*.png")}
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert pictures == {name for name in pictures if f"{name})" in pages}


def test_llms_txt_is_of_today():
    """After a change: python -m docs.building.llms."""
    text = llms.PAGE.read_text(encoding="utf-8")
    assert text == llms.llms_text()
    for package in PACKAGES:
        module = importlib.import_module(".".join(["keras_idea", package]).strip("."))
        for name in module.__all__:
            assert f"\n- `{name}" in text, f"{package}.{name}"


def test_the_run_files_of_the_pages_are_some():
    texts = [(ROOT / f"docs/{name}.md").read_text() for name in ("runs", "checkpoint")]
    pattern = r"\n\n((?:    .*\n|\n)*    \[model\]\n(?:    .*\n|\n)*)"
    found = [lines for text in texts for lines in re.findall(pattern, text)]
    config, chat = (parse_config(textwrap.dedent(lines)) for lines in found)
    assert chat.data.chat and chat.model.preset and not chat.budget.enlarge_steps
    assert config.model.hub == "llama3" and config.model.target_dim == 192
    assert config.run.output == "runs/mine" and config.optimizer.name == "adamw"


def test_links_lead_somewhere():
    guides = [*ROOT.glob("docs/guides/*.py")]
    for page in [*PAGES, *guides, ROOT / "llms.txt"]:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for target, anchor in LINK.findall(text):
            if "://" in target:
                continue
            path = page.parent / target if target else page
            if page in guides and path.suffix == ".md" and path.parent == page.parent:
                path = path.with_suffix(".py")  # as a page, it links to pages
            assert path.exists(), f"{page.name}: {target}"
            if anchor and path.suffix == ".md":
                assert anchor in anchors(path), f"{page.name}: {target}#{anchor}"


def anchors(page):
    """What a link may name: the headings, as the site's toc writes them."""
    heads = re.findall("^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", head).strip().lower() for head in heads]
    return {re.sub("[ -]+", "-", head) for head in plain}


@pytest.mark.daily()
def test_an_example_ends_as_it_says(capsys):
    runpy.run_path(str(ROOT / "examples/prune_in_fit.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(re.search(r"test accuracy (\d\.\d+)", said)[1]) >= 0.99


def example_of(name):
    path = ROOT / f"examples/{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


@pytest.mark.daily()
def test_a_pruned_checkpoint_keeps_its_tokenizer(monkeypatch, tmp_path):
    """The example's way: preset, student and teacher, preset; it writes text."""
    import keras_hub

    tokenizer = make_tokenizer("llama3", "bytes", "")
    size = tokenizer.vocabulary_size()
    lm = tiny_lm("llama3", vocabulary_size=size, intermediate_dim=96)
    lm.preprocessor = keras_hub.models.Llama3CausalLMPreprocessor(tokenizer, 16)
    lm.save_to_preset(str(tmp_path / "preset"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["prune_a_checkpoint.py", "preset"])
    example = example_of("prune_a_checkpoint")
    for name, value in {"PRUNE_STEPS": 20, "RECOVER_STEPS": 30, "LENGTH": 16}.items():
        monkeypatch.setattr(example, name, value)
    before, after = example.main()
    assert after < before
    narrow = keras_hub.models.CausalLM.from_preset("runs/checkpoint-preset")
    assert narrow.backbone.intermediate_dim == 64
    assert len(narrow.generate("def ", max_length=12)) > len("def ")
    out = ["--hf", "hf"]
    assert main(["export", "runs/checkpoint-preset", *out]) == 0
    assert pathlib.Path("hf/tokenizer.json").is_file()


@pytest.mark.daily()
def test_branches_of_one_run_have_the_widths_that_they_say(monkeypatch, tmp_path):
    example = example_of("one_run_branches")
    monkeypatch.setattr(example, "ENLARGE", 6)
    monkeypatch.setattr(example, "PRUNE", 4)
    monkeypatch.setattr(example, "RECOVER", 10)
    monkeypatch.chdir(tmp_path)
    example.main()
    for width in example.WIDTHS:
        member = keras.models.load_model(f"branches/{width}.keras")
        ffns = [layer for layer in member.layers if isinstance(layer, ki.GatedFFN)]
        assert [ffn.hidden_dim for ffn in ffns] == [width, width]
        # Trained on from where the trunk was: nothing was begun anew.
        assert int(member.optimizer.iterations) == 6 + 10 + 4 * (
            1 + example.WIDTHS.index(width)
        )
