"""Every guide is run as it stands, and what it shows is so."""

import ast
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import zipfile

import keras
import keras_hub
import nbformat
import numpy as np
import pytest

import keras_idea as ki
from docs.building import outputs
from docs.building.guides import read_guide, to_notebook, to_page
from keras_idea.keras_private.layers import walk
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


@pytest.mark.parametrize("text", ["import os\n", '"""\nTitle: A\n"""\n\n"""\nopen\n'])
def test_what_is_no_guide_is_refused(text):
    with pytest.raises(ValueError, match="begins with its header"):
        read_guide(text)


def test_your_own_model(run):
    names = run("your_own_model")
    assert names["history"].history["width"][0] == 128
    assert names["history"].history["width"][-1] == 48
    assert names["history"].history["loss"][-1] < names["history"].history["loss"][0]
    assert names["difference"].max() < 1e-4
    assert names["loaded"].count_params() == names["narrow"].count_params()


def test_any_keras_model(run, tmp_path):
    names = run("any_keras_model")
    # The classifier's head could be pruned, and is left out by `groups`.
    assert list(names["explained"].taken.values()) == [64, 20]
    assert list(names["explained"].heads.values()) == [2]
    # What reads the neurons, and what the model returns.
    assert set(names["explained"].left_out) == {"block/sequential/dense_1", "dense_2"}
    width = names["history"].history["width"]
    assert width[0] == 64 and width[-1] == 16
    assert names["history"].history["accuracy"][-1] >= 0.95
    np.testing.assert_allclose(names["difference"], 0.0, atol=1e-5)
    for model in (names["model"], names["loaded"]):
        block = model.get_layer("block")
        assert [layer.units for layer in block.ffn.layers] == [16, 16]
        assert block.get_config()["ff_dim"] == 16
        assert model.get_layer("hidden").units == 20
    # The process that loads the file needs the block, and nothing of this package.
    with zipfile.ZipFile(tmp_path / "narrow.keras") as file:
        assert b"keras_idea" not in file.read("config.json")


def test_keras_hub_model(run, tmp_path):
    names = run("keras_hub_model")
    lm = names["lm"]
    assert type(lm) is keras_hub.models.Llama3CausalLM
    assert lm.backbone.intermediate_dim == 48
    assert [f.kernels[0].shape for f in ki.find_ffns(lm)] == [(32, 48)] * 2
    assert not any(type(part).__module__.startswith("keras_idea") for part in walk(lm))
    np.testing.assert_allclose(names["difference"], 0.0, atol=1e-5)
    config = json.loads((tmp_path / "narrow_preset/config.json").read_text())
    assert config["class_name"] == "Llama3Backbone"
    assert config["config"]["intermediate_dim"] == 48
    # The classifier was pruned while it read strings.
    assert names["judged"].history["width"][-1] == 24
    assert names["loaded"].backbone.intermediate_dim == 24
    assert names["verdicts"].argmax(-1).tolist() == [1, 0]


def test_released_checkpoint(run):
    names = run("released_checkpoint")
    assert names["student"].backbone.intermediate_dim == 64
    assert names["after"] < names["before"]
    # What was saved reads and writes text where this package is not.
    assert names["loaded"].backbone.intermediate_dim == 64
    assert names["text"].startswith("def ") and len(names["text"]) > len("def ")
    vocabulary = names["loaded"].preprocessor.tokenizer.get_vocabulary()
    assert vocabulary == names["tokenizer"].get_vocabulary()


def test_a_convolutional_net(run, tmp_path):
    names = run("a_convolutional_net")
    # The residual stream of each width is one group; the head reads the last.
    assert list(names["explained"].groups["channels"].values()) == [48] * 3 + [96] * 2
    channels = names["history"].history["channels"]
    assert channels[0] == 67.2 and channels[-1] == 16.8
    for model in (names["model"], names["loaded"]):
        backbone = model.get_layer("backbone")
        filters = [c.filters for c in backbone.layers if hasattr(c, "filters")]
        assert filters == [12] * 4 + [24] * 3
    assert names["difference"] == 0.0
    assert names["loaded"].evaluate(*names["test"], verbose=0)[1] > 0.85
    sizes = [(tmp_path / f"{n}.keras").stat().st_size for n in ("narrow", "wide")]
    assert sizes[0] < sizes[1] / 2
    with zipfile.ZipFile(tmp_path / "narrow.keras") as file:
        assert b"keras_idea" not in file.read("config.json")


def test_several_widths(run, tmp_path):
    names = run("several_widths")
    history = names["history"]
    for log in names["LOGS"].values():
        assert history[log][-1] < history[log][0]
    for name, neurons in {**names["WIDTHS"], "full": names["WIDE"]}.items():
        model = keras.models.load_model(f"{name}.keras")
        assert [ffn.hidden_dim for ffn in ki.find_ffns(model)] == [neurons] * 2
        loss = model.evaluate(*names["held_out"], verbose=0)
        assert loss == pytest.approx(history[names["LOGS"][name]][-1], rel=1e-5)
        with zipfile.ZipFile(tmp_path / f"{name}.keras") as file:
            assert b"keras_idea" not in file.read("config.json")
    assert (tmp_path / "widths.png").stat().st_size > 10_000


def test_several_axes(run):
    names = run("several_axes")
    full = names["lm"].backbone
    for model in (names["in_fit"], names["in_one_step"], names["loaded"]):
        assert model.backbone.count_params() <= names["BUDGET"]
        assert model.backbone.num_key_value_heads < full.num_key_value_heads
    assert names["bits"](names["in_one_step"]) < names["before_training"]
    assert pathlib.Path("search.png").stat().st_size > 10_000


def test_a_run_that_lasts(run, capsys):
    names = run("a_run_that_lasts")
    said = capsys.readouterr().out
    # Killed after it became narrow, and resumed there.
    assert re.findall(r"begins at epoch (\d), with (\d+) neurons", said) == [
        ("0", "96"),
        ("5", "32"),
        ("0", "96"),
    ]
    resumed, whole = names["resumed"].get_weights(), names["whole"].get_weights()
    for mine, other in zip(resumed, whole, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    assert list(pathlib.Path("killed/logs").glob("**/events*"))


def test_a_method_of_your_own(run, capsys):
    names = run("a_method_of_your_own")
    said = re.findall(r"(\w+): (\d\.\d+) bits", capsys.readouterr().out)
    ways = ["random", "magnitude", "neuron_taylor", "sensitivity"]
    assert [name for name, _ in said] == [*ways, "neurons", *ways, "activation"]
    bits = [float(bits) for _, bits in said]
    assert max(bits[:5]) < 4.5 and min(bits[5:]) > bits[4]  # these are not recovered
    assert names["NeuronTaylor"].name == "neuron_taylor"


def test_reading_the_pictures(run):
    run("reading_the_pictures")
    made = {path.name for path in pathlib.Path("runs/small").iterdir()}
    assert {"run.png", "table.md", "metrics.csv", "narrow.keras"} <= made


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
    assert "(32, 32) a device holds (32, 16)" in done.stdout
    losses = re.findall(r"\[(.*?)\] \[96.0, 32.0, 32.0\]", done.stdout)
    alone, spread = (np.array(row.split(), float) for row in losses)
    np.testing.assert_allclose(alone, spread, atol=2e-3)


def test_backends_are_named():
    """A guide runs on the backend that is set, but for the one on meshes."""
    for guide in GUIDES.glob("*.py"):
        fixed = 'os.environ["KERAS_BACKEND"] = "jax"' in guide.read_text()
        assert fixed == (guide.stem == "many_devices")
