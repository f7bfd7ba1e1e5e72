"""How the command line begins: quick, quiet, and plain about what is missing."""

import sys

import keras
import pytest

import keras_idea as ki
from keras_idea.lm.cli import main
from tests.support.processes import MODULE, PROGRAM, path_with, python
from tests.support.tiny_run import CONFIG, write_inputs


@pytest.mark.parametrize("begin", [PROGRAM, MODULE], ids=["program", "module"])
@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--help"], 0, "evaluate"),
        (["train", "--help"], 0, "KERAS_BACKEND=jax"),
        (["tarin"], 2, "invalid choice: 'tarin'"),
    ],
    ids=["help", "help of a command", "no such command"],
)
def test_arguments_are_read_before_keras(begin, words, status, said, tmp_path):
    (tmp_path / "keras.py").write_text("raise SystemExit('Keras was imported')")
    ended = python(*begin, *words, PYTHONPATH=path_with(tmp_path))
    assert ended.returncode == status, ended.stderr
    assert said in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "words, meant",
    [
        (["tarin", "run.toml"], "train"),
        (["train", "--overwite"], "--overwrite"),
        (["plan", "--divices", "2x1"], "--devices"),
    ],
)
def test_the_name_that_was_meant(words, meant, tmp_path):
    (tmp_path / "keras.py").write_text("raise SystemExit('Keras was imported')")
    ended = python(*PROGRAM, *words, PYTHONPATH=path_with(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.endswith(f" Did you mean {meant!r}?\n")


@pytest.mark.parametrize("begin", [PROGRAM, MODULE], ids=["program", "module"])
def test_a_backend_that_does_not_exist_is_one_line(begin, tmp_path):
    ended = python(*begin, "plan", PYTHONPATH=path_with(), KERAS_BACKEND="jaxx")
    assert ended.returncode == 2 and ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "Unable to import backend : jaxx" in line
    assert line.endswith("Did you mean 'jax'?")


def test_another_module_that_imports_the_package_keeps_its_arguments(tmp_path):
    """`python -m mine -x`, whose package imports this one before its `__main__`."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text("import keras_idea\n")
    (tmp_path / "mine/__main__.py").write_text("import sys; print(sys.argv[1:])\n")
    ended = python("-m", "mine", "-x", "train", PYTHONPATH=path_with(tmp_path))
    assert ended.stdout.split() == ["['-x',", "'train']"], ended.stderr


@pytest.mark.parametrize("begin", [PROGRAM, MODULE], ids=["program", "module"])
def test_nothing_but_what_is_asked_for_is_said(begin, tmp_path):
    """No greetings of TensorFlow's, which KerasHub imports on every backend."""
    config = CONFIG.replace("[model]\n", "[model]\nhub = 'llama3'\n")
    write_inputs(tmp_path, config)
    words = [*begin, "plan", "tiny.toml"]
    ended = python(*words, folder=tmp_path, PYTHONPATH=path_with())
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "recovery" in ended.stdout


@pytest.mark.parametrize("begin", [PROGRAM, MODULE], ids=["program", "module"])
def test_a_backend_that_is_not_there_is_one_line(begin, tmp_path):
    (tmp_path / "keras.py").write_text("import a_backend")
    ended = python(*begin, "plan", PYTHONPATH=path_with(tmp_path))
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("keras-idea: Keras cannot be imported: No module named")


@pytest.mark.parametrize(
    "words, package",
    [
        (["train", "tiny.toml"], "matplotlib"),
        (["train", "tiny.toml"], "rich"),
        (["train", "tiny.toml"], "tomli_w"),
        (["plan", "tiny.toml"], "rich"),
        (["evaluate", "runs/tiny", "--text", "text.txt"], "rich"),
        (["report", "runs/tiny"], "matplotlib"),
        (["report", "runs/tiny"], "rich"),
    ],
)
def test_a_package_that_is_not_there_is_one_line(
    words, package, tmp_path, monkeypatch, capsys
):
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    before = sorted(tmp_path.iterdir())
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"needs the package '{package}', which cannot be imported" in line
    assert line.endswith('Install it: pip install "keras-idea[cli]"')
    assert sorted(tmp_path.iterdir()) == before


def test_to_import_the_package_is_enough_to_load_a_model(tmp_path):
    """Its classes are registered with Keras by the import, whichever was first."""
    inputs = keras.Input((4,))
    model = keras.Model(inputs, ki.GatedFFN(8)(ki.PrunableGatedFFN(8)(inputs)))
    model.compile(keras.optimizers.Adam(ki.CosineDecay(1e-3, 1e-4, 10)), "mse")
    model.save(tmp_path / "ffns.keras")
    shape = ki.models.DecoderConfig(
        vocabulary_size=8,
        model_dim=8,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        sequence_length=4,
    )
    ki.models.decoder(shape).save(tmp_path / "decoder.keras")
    code = "import keras_idea, keras\nfor name in ('ffns', 'decoder'):\n"
    code += "    print(keras.models.load_model(f'{name}.keras').count_params())"
    ended = python("-c", code, folder=tmp_path, PYTHONPATH=path_with())
    assert len(ended.stdout.split()) == 2, ended.stderr
