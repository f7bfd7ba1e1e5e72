"""What the pages say: their code runs, their links lead somewhere."""

import importlib.util
import pathlib
import re
import runpy
import textwrap

import keras

import keras_idea as ki
from keras_idea.runs.config import parse_config

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("examples/*.md"),
    *ROOT.glob("benchmarks/**/*.md"),
]
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def test_the_readme_s_code_runs(tmp_path, monkeypatch):
    """As it is copied: fifteen lines, from nothing to a file."""
    monkeypatch.chdir(tmp_path)
    [block] = BLOCK.findall((ROOT / "README.md").read_text())
    names: dict = {}
    exec(block, names)
    assert len([line for line in block.splitlines() if line]) <= 18
    width = names["model"].history.history["width"]
    assert width == [128.0, 128.0, 48.0, 48.0]
    narrow = keras.models.load_model("narrow.keras")
    kept = [layer for layer in narrow.layers if isinstance(layer, ki.GatedFFN)]
    assert [layer.hidden_dim for layer in kept] == [48]


def test_no_other_page_has_code_that_no_test_runs():
    """Code lies in guides and examples, which run; a page of words points there."""
    holding = {str(p.relative_to(ROOT)) for p in PAGES if BLOCK.search(p.read_text())}
    assert holding == {"README.md"}


def test_the_run_file_of_the_command_line_s_page_is_one():
    page = (ROOT / "docs/command_line.md").read_text()
    [lines] = re.findall(r"\n\n((?:    .*\n|\n)*    \[model\]\n(?:    .*\n|\n)*)", page)
    config = parse_config(textwrap.dedent(lines))
    assert config.model.hub == "llama3" and config.model.target_dim == 192
    assert config.run.output == "runs/mine" and config.optimizer.name == "adamw"


def test_links_lead_somewhere():
    for page in PAGES:
        for target in LINK.findall(page.read_text()):
            if "://" not in target:
                path = page.parent / target
                made = {ROOT / "docs/support.md"}  # by `make docs`
                assert path.exists() or path in made, f"{page.name}: {target}"


def test_an_example_ends_as_it_says(capsys):
    runpy.run_path(str(ROOT / "examples/prune_in_fit.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert float(re.search(r"test accuracy (\d\.\d+)", said)[1]) >= 0.99


def test_the_family_of_one_run_has_the_widths_that_it_says(monkeypatch, tmp_path):
    path = ROOT / "examples/one_run_a_family.py"
    spec = importlib.util.spec_from_file_location("one_run_a_family", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "ENLARGE", 6)
    monkeypatch.setattr(example, "PRUNE", 4)
    monkeypatch.setattr(example, "RECOVER", 10)
    monkeypatch.chdir(tmp_path)
    example.main()
    for width in example.WIDTHS:
        member = keras.models.load_model(f"family/{width}.keras")
        ffns = [layer for layer in member.layers if isinstance(layer, ki.GatedFFN)]
        assert [ffn.hidden_dim for ffn in ffns] == [width, width]
        # Trained on from where the trunk was: nothing was begun anew.
        assert int(member.optimizer.iterations) == 6 + 10 + 4 * (
            1 + example.WIDTHS.index(width)
        )
