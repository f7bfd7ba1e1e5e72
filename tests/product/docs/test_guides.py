"""Every guide is run as it stands, and what it shows is so."""

import ast
import os
import re
import runpy
import subprocess
import sys

import keras
import nbformat
import numpy as np
import pytest

from docs.building import outputs
from docs.building.guides import read_guide, to_notebook, to_page
from tests.support import ROOT

GUIDES = ROOT / "docs" / "guides"
HEADER = re.compile(
    r'"""\nTitle: .+\nAuthor: the keras-idea authors\nDate created: \d{4}/\d\d/\d\d\n'
    r"Last modified: \d{4}/\d\d/\d\d\nDescription: .+\nAccelerator: None\n"
    r'"""\n\n"""\n## '
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a guide in an empty folder; returns its names."""
    monkeypatch.chdir(tmp_path)
    # They set it where it is not set.
    monkeypatch.setenv("KERAS_BACKEND", keras.backend.backend())
    return lambda name: runpy.run_path(str(GUIDES / f"{name}.py"))


@pytest.mark.parametrize("guide", sorted(GUIDES.glob("*.py")), ids=lambda p: p.stem)
def test_header(guide):
    text = guide.read_text()
    assert HEADER.match(text)
    # A fence opens or closes a block of text: none lies within the code.
    fences = [line for line in text.splitlines() if line == '"""']
    assert len(fences) % 2 == 0


@pytest.mark.parametrize("path", sorted(GUIDES.glob("*.py")), ids=lambda p: p.stem)
def test_its_notebook_has_the_same_code(path):
    guide = read_guide(path.read_text())
    notebook = nbformat.reads(to_notebook(guide), as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith(f"# {guide.header['Title']}")
    code = "\n".join(c.source for c in notebook.cells if c.cell_type == "code")
    words = [c.source for c in notebook.cells if c.cell_type == "markdown"]
    own = ast.parse(path.read_text()).body
    texts = [s.value.value for s in own if _is_text(s)]
    assert ast.dump(ast.parse(code)) == ast.dump(
        ast.Module([s for s in own if not _is_text(s)], [])
    )
    assert words[1:] == [text.strip() for text in texts[1:]]
    page = to_page(guide, path.stem)
    assert page.count("```python") == sum(c.cell_type == "code" for c in notebook.cells)


@pytest.mark.parametrize("path", sorted(GUIDES.glob("*.py")), ids=lambda p: p.stem)
def test_its_page_shows_what_it_prints(path):
    """After a change of a guide: python -m docs.building.outputs NAME."""
    guide, known = read_guide(path.read_text()), outputs.outputs()
    assert all(outputs.key(code) in known for code in outputs.code_cells(path.stem))
    said = outputs.printed(path.stem)
    page = to_page(guide, path.stem, said)
    assert page.count("```text") == sum(map(bool, said.values())) > 0


def _is_text(statement):
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@pytest.mark.daily()
def test_your_own_layer(run):
    names = run("your_own_layer")
    assert names["history"].history["width"][0] == 128
    assert names["history"].history["width"][-1] == 48
    assert names["history"].history["loss"][-1] < names["history"].history["loss"][0]
    assert names["difference"].max() < 1e-4
    assert names["loaded"].count_params() == names["narrow"].count_params()


@pytest.mark.daily()
def test_heads_and_channels(run, tmp_path):
    names = run("heads_and_channels")
    # The residual stream of each width is one group; the head reads the last.
    assert list(names["explained"].groups["channels"].values()) == [48] * 3 + [96] * 2
    channels = names["history"].history["channels"]
    assert channels[0] == 67.2 and channels[-1] == 16.8
    backbone = names["loaded"].get_layer("backbone")
    filters = [c.filters for c in backbone.layers if hasattr(c, "filters")]
    assert filters == [12] * 4 + [24] * 3
    assert names["difference"] == 0.0 and names["accuracy"] > 0.85
    sizes = [(tmp_path / f"{n}.keras").stat().st_size for n in ("narrow", "wide")]
    assert sizes[0] < sizes[1] / 2
    full = names["lm"].backbone
    for model in (names["in_fit"], names["in_one_step"], names["smaller"]):
        assert model.backbone.count_params() <= names["BUDGET"]
        assert model.backbone.num_key_value_heads < full.num_key_value_heads
    assert names["bits"](names["in_one_step"]) < names["before_training"]


@pytest.mark.daily()
def test_your_own_method(run, capsys):
    names = run("your_own_method")
    said = re.findall(r"(\w+): (\d\.\d+) bits", capsys.readouterr().out)
    ways = ["random", "magnitude", "neuron_taylor", "sensitivity"]
    assert [name for name, _ in said] == [*ways, "neurons", *ways, "activation"]
    bits = [float(bits) for _, bits in said]
    assert max(bits[:5]) < 4.5 and min(bits[5:]) > bits[4]  # these are not recovered
    assert names["NeuronTaylor"].name == "neuron_taylor"


@pytest.mark.daily()
def test_many_devices(tmp_path):
    """In a process of its own: it makes four devices of one CPU."""
    done = subprocess.run(
        [sys.executable, str(GUIDES / "many_devices.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(GUIDES.parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "up kernel (32, 32) on 4" in done.stdout
    losses = re.findall(r"\[(.*?)\] \[96.0, 32.0, 32.0\]", done.stdout)
    alone, spread = (np.array(row.split(), float) for row in losses)
    np.testing.assert_allclose(alone, spread, atol=2e-3)
